#include "config/load.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "config/validate.hpp"
#include "config/yaml_tree.hpp"

namespace efs::config {
namespace {

constexpr std::size_t largest_file = 1u << 20;

std::unexpected<std::vector<Problem>> one_problem(std::string text, std::string suggestion) {
  return std::unexpected(std::vector{Problem{.text = std::move(text), .suggestion = std::move(suggestion)}});
}

// The whole file. Not larger than the limit by more than one byte: parse() refuses it then.
Result<std::string> read_file(const std::string& file) {
  // O_NONBLOCK: a FIFO without a writer must not hang the command.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno("cannot read the job file");
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("cannot read the job file");
  if (!S_ISREG(status.st_mode)) return fail(EINVAL, "the job file is not a regular file");
  std::string text(largest_file + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const auto count = ::read(fd.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("cannot read the job file");
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

std::expected<JobConfig, std::vector<Problem>> parse_checked(const std::string& text, const std::string& file, const Overrides& overrides) {
  const auto root = read_yaml(text);
  if (!root) return std::unexpected(std::vector{root.error()});
  ProblemList problems;
  auto config = validate(read_document(*root, problems), file, overrides, problems);
  if (!problems.empty()) return std::unexpected(problems.take_sorted());
  return config;
}

}  // namespace

std::expected<JobConfig, std::vector<Problem>> parse(const std::string& text, const std::string& file, const Overrides& overrides) {
  if (text.size() > largest_file) return one_problem("the job file is larger than 1 MiB", "name directories or globs instead of single files");
  try {
    return parse_checked(text, file, overrides);
  } catch (const std::exception& error) {  // bad_alloc and its like; YAML's own are caught where they enter
    return one_problem(std::string("the job file cannot be parsed: ") + error.what(), "");
  }
}

std::expected<JobConfig, std::vector<Problem>> load(const std::string& file, const Overrides& overrides) {
  const auto text = read_file(file);
  if (!text) return one_problem(describe(text.error()), "");
  return parse(*text, file, overrides);
}

}  // namespace efs::config
