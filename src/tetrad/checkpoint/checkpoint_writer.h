// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints written while training goes on: on a thread of their own, one at a time.

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tetrad/checkpoint/checkpoint_store.h"

namespace tetrad {

/// For one thread, which begins to write and asks later what came of it. Its end waits for a checkpoint that
/// is being written.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointStore store) : store_(std::move(store)) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter() { join(); }

  /// CheckpointStore::write() on another thread, or, where none can be started, on this one. The one before
  /// must have been finished.
  void start(CheckpointContents contents, CheckpointStore::Stays stays);

  /// From start() to finish().
  bool is_writing() const { return task_.has_value(); }
  /// Whether finish() has something to say and need not wait for it.
  bool is_done() const;

  /// Returns when all tensors were read, or never will be: they may be changed then.
  void wait_until_read();

  /// What write() returned or threw. Once for each start().
  WrittenCheckpoint finish();

  /// To be used while nothing is being written.
  CheckpointStore& store();

 private:
  struct Task {
    CheckpointContents contents;
    CheckpointStore::Stays stays;
  };

  void write();
  void join();

  CheckpointStore store_;     //!< with the task, the thread's while it runs
  std::optional<Task> task_;  //!< nothing: nothing is being written
  std::thread thread_;

  mutable std::mutex mutex_;  //!< for what follows
  std::condition_variable changed_;
  bool is_read_ = false;
  bool is_done_ = false;
  WrittenCheckpoint written_;
  std::exception_ptr failure_;
};

}  // namespace tetrad
