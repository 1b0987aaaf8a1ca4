// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "number_checks.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/plot/chart.h"
#include "tetrad/plot/figure.h"
#include "tetrad/plot/run_metrics.h"
#include "tetrad/plot/summary.h"
#include "tetrad/plot/svg_chart.h"

namespace tetrad::app {
namespace {

struct PlotOptions {
  std::vector<std::string> runs;
  std::string svg;
  std::int64_t smooth = 0;
  int width = 0;
  bool json = false;
};

void run(const PlotOptions& options) {
  std::vector<RunMetrics> runs;
  for (const std::string& folder : options.runs) runs.push_back(read_run(folder));
  const References references = read_references(runs);
  const Figure figure = make_figure(runs, references, options.smooth);
  const std::vector<RunSummary> summaries = summarize(runs);
  if (!options.svg.empty()) {
    const FoldersAbove folders(options.svg);
    write_file_atomically(options.svg, draw_svg(figure, headline(summaries)));
  }
  if (options.json) {
    fmt::print("{}\n", to_json_text(summaries, references));
    return;
  }
  const ChartStyle style = detect_style(options.width);
  fmt::print("{}\n{}", draw_chart(figure, style), summary_table(summaries, references, !style.unicode));
}

}  // namespace

void add_plot(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlotOptions>();
  CLI::App* command = app.add_subcommand("plot", "Plot loss curves of runs, in the terminal and as SVG");
  command->add_option("runs", options->runs, "Folders of runs; all are compared with the first")
      ->required()
      ->type_name("RUN");
  command->add_option("--svg", options->svg, "Also write an SVG file")->type_name("FILE");
  command
      ->add_option("--smooth", options->smooth,
                   "Steps of the moving average (default: a fiftieth of the run)")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--width", options->width, "Columns of the chart (default: those of the terminal)")
      ->check(whole_number(kMinChartWidth, kMaxChartWidth))
      ->type_name("N");
  command->add_flag("--json", options->json, "Print one JSON object instead of chart and table");
  set_examples(*command,
               "  tetrad plot runs/bf16 runs/nvfp4\n"
               "  tetrad plot runs/bf16 runs/nvfp4 --svg loss.svg --json");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
