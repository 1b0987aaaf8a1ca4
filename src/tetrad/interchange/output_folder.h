#pragma once
// A folder that appears whole or not at all.

#include <filesystem>
#include <functional>

namespace tetrad {

enum class Overwrite : bool { no, yes };

/// Files are written into path(), a new folder beside `target`; commit() makes it durable and gives it its
/// name. Without commit() nothing remains, and what was there before is untouched.
class OutputFolder {
 public:
  /// An empty `target` is taken over. One that holds anything is refused with Error (bad input), unless
  /// `overwrite` and `is_ours(target)`.
  OutputFolder(std::filesystem::path target, Overwrite overwrite,
               const std::function<bool(const std::filesystem::path&)>& is_ours);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  const std::filesystem::path& path() const { return temporary_; }
  /// Throws Error (failure).
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  //!< empty once it has its name
  bool replaces_ = false;            //!< something of ours that is there
};

}  // namespace tetrad
