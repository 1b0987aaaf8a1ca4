#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that scripts/check-report can fail: breaks a good page in one place at a time and expects the check that is there for it
to say so. Exit codes as those of scripts/check-report."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check-report"
LOADER = importlib.machinery.SourceFileLoader("check_report", str(SCRIPT))
check_report = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_report", LOADER))
LOADER.exec_module(check_report)
import sample_report  # noqa: E402  # check_report has put its folder on the path

# What is broken, the sample, the check that must notice, what is replaced (it must be there exactly once), and by what.
MUTANTS = [
    ("an exception", "quickstart", "quiet", "\nstartPage();", "\nstartPage();\nundefinedName();"),
    ("an error on the console", "quickstart", "quiet", "\nstartPage();", "\nstartPage();\nconsole.error('broken');"),
    ("a picture from the network", "quickstart", "quiet", "\nstartPage();",
     "\nstartPage();\ndocument.body.style.background = 'url(http://127.0.0.1:9/x.png)';"),
    ("a request of a script", "quickstart", "quiet", "\nstartPage();", "\nstartPage();\nfetch('http://127.0.0.1:9/').catch(() => {});"),
    ("no content security policy", "quickstart", "inert", "default-src 'none';", ""),
    ("a section that is not there", "quickstart", "sections", '<section id="cost"', '<section id="costs"'),
    ("a verdict with the wrong word", "quickstart", "sections", "undecided: ['?', 'Undecided']", "undecided: ['?', 'Equivalent']"),
    ("a value that is not there", "incomplete", "words", "cell ?? unavailable()", "String(cell)"),
    ("a mean of the wrong trials", "study", "tooltips", "/ values.length;", "/ (values.length + 0.001);"),
    ("gaps of the wrong sign", "study", "tooltips", "100 * (value / base - 1)", "100 * (1 - value / base)"),
    ("pairs of the wrong trials", "study", "tooltips", "pair: JSON.stringify([trial.seed, ...facet])",
     "pair: JSON.stringify(facet)"),
    ("survivors taken for all", "diverged", "tooltips", "return healthy.length > 0 ? healthy : known;", "return known;"),
    ("a tooltip that stays", "quickstart", "tooltips", "hide() { document.getElementById('tooltip').hidden = true; }", "hide() {}"),
    ("keys that do nothing", "quickstart", "keyboard", "Home: 0, End: last", "End: last"),
    ("a legend that hides nothing", "quickstart", "legend", "return this.arms.filter((arm) => !this.hidden.has(arm.index));",
     "return this.arms;"),
    ("a slider that smooths nothing", "quickstart", "controls", "if (half === 0)", "if (half >= 0)"),
    ("trials that cannot be chosen", "factors", "controls", "arm.runs.filter((run) => run.facet === choice.facet).flatMap((run) => {",
     "arm.runs.flatMap((run) => {"),
    ("a map of something else", "study", "quantizer", "const value = cell[metric.key];", "const value = cell.saturated;"),
    ("a map upside down", "study", "quantizer", "metric.lowIsBad && high > low ? 1 - share : share", "share"),
    ("a map with rows and columns mixed up", "study", "quantizer", "Math.floor((event.clientY - box.top) / HeatMap.ROW)", "0"),
    ("a device that is never busy", "study", "cost", "(cost) => cost.device_busy", "() => 0"),
    ("nothing said of what is missing", "quickstart", "cost", "...missingText(missing)", "null"),
    ("no dark theme", "quickstart", "themes", "color-scheme: light dark;", "color-scheme: light;"),
    ("text that is hard to read", "quickstart", "themes", "--muted: light-dark(#566070,", "--muted: light-dark(#a6b0c0,"),
    ("a table wider than a phone", "study", "phone", ".wide { overflow-x: auto;", ".wide { overflow-x: visible;"),
    ("blocks called layers", "study", "rendered", "${pattern.length} blocks", "${pattern.length} layers"),
    ("tables that scroll in secret", "study", "phone", "no-repeat scroll; }", "no-repeat local; }"),
    ("a tick cut off", "study", "axes", "Math.min(at, this.width - HALF_LETTER * label.length)", "Math.max(at, this.width - 2)"),
    ("controls on paper", "quickstart", "print", "nav, .controls, #theme,", "nav, #theme,"),
    ("a download with a wrong value", "quickstart", "downloads", "listOf(trial.loss)[i]", "listOf(trial.loss)[i]?.toFixed(3)"),
    ("a download that loses a trial", "study", "downloads", "for (const trial of listOf(arm.trials)) {",
     "for (const trial of listOf(arm.trials).slice(1)) {"),
    ("a download that runs in a spreadsheet", "hostile", "downloads", "? `'${value}` : value;", "? value : value;"),
    ("names as markup", "hostile", "inert", "element.append(...children.filter((child) => child !== null && child !== undefined));",
     "for (const child of children) if (child instanceof Node) element.append(child); else if (child) element.innerHTML += child;"),
    ("a report that ends its element", "hostile", "rendered", None, None),
]


def broken_page(sample, old, new):
    report = sample_report.CASES[sample]()
    page = sample_report.assemble(report)
    if old is None:  # "</" escaped, as is often done, but not "<!--<script": the end of the element is not seen any more
        whole = json.dumps(report, ensure_ascii=False)
        return report, page.replace(whole.replace("<", "\\u003c"), whole.replace("</", "<\\/"))
    if page.count(old) != 1:
        sys.exit(f"{old!r} is {page.count(old)} times in the page, not once: this test must follow the page")
    return report, page.replace(old, new)


def failures_of(browser, file, check, report, page):
    file.write_text(page, encoding="utf-8", newline="")
    return check_report.failures_of(browser, file, report, [getattr(check_report, f"check_{check}")])


def main():
    program = check_report.find_chromium()
    if program is None:
        print("NOT RUN: there is no Chromium here", file=sys.stderr)
        return check_report.NOT_RUN
    missed = 0
    with tempfile.TemporaryDirectory(prefix="check-report-", ignore_cleanup_errors=True) as folder:
        file = pathlib.Path(folder, "page.html")
        browser = check_report.Browser(program, folder)
        try:
            for what, sample, check, old, new in MUTANTS:
                failures = failures_of(browser, file, check, *broken_page(sample, old, new))
                seen = bool(failures)
                missed += not seen
                print(f"{'noticed' if seen else 'MISSED'}: {what}: {[failure[:110] for failure in failures]}")
        finally:
            browser.close()
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} broken pages were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
