// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_writer.h"

#include <string_view>
#include <system_error>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

void check_order(bool is_right, std::string_view message) {
  if (!is_right) throw Error(fmt::format("{}; this is a bug of the caller", message), ExitCode::failure);
}

}  // namespace

void CheckpointWriter::start(CheckpointContents contents, CheckpointStore::Stays stays) {
  check_order(!is_writing(), "a checkpoint is being written already");
  task_ = {std::move(contents), std::move(stays)};
  is_read_ = is_done_ = false;
  try {
    if (const int code = failpoint("checkpoint.thread"); code != 0)
      throw std::system_error(code, std::generic_category());
    thread_ = std::thread([this] { write(); });
  } catch (const std::system_error& error) {
    write();
    written_.warnings.push_back(
        fmt::format("no thread could be started for the checkpoint, so that training waited for it: {}",
                    error.code().message()));
  }
}

void CheckpointWriter::write() {
  WrittenCheckpoint written;
  std::exception_ptr failure;
  try {
    written = store_.write(task_->contents, task_->stays, [this] {
      task_->contents.let_memory_go();
      const std::lock_guard lock(mutex_);
      is_read_ = true;
      changed_.notify_all();
    });
  } catch (...) {
    failure = std::current_exception();
  }
  task_->contents.let_memory_go();
  const std::lock_guard lock(mutex_);
  written_ = std::move(written);
  failure_ = std::move(failure);
  is_read_ = is_done_ = true;
  changed_.notify_all();
}

bool CheckpointWriter::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_writing() && is_done_;
}

void CheckpointWriter::wait_until_read() {
  if (!is_writing()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_read_; });
}

WrittenCheckpoint CheckpointWriter::finish() {
  check_order(is_writing(), "no checkpoint is being written");
  join();
  task_.reset();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::move(written_);
}

CheckpointStore& CheckpointWriter::store() {
  check_order(!is_writing(), "the checkpoints cannot be used while one is being written");
  return store_;
}

void CheckpointWriter::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace tetrad
