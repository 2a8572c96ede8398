// SPDX-License-Identifier: BSD-3-Clause
#include "cli/find_receipt.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cli/cli.hpp"
#include "stage/export/missed_names.hpp"
#include "stage/export/receipt_reader.hpp"
#include "stage/pfs/partial_name.hpp"

namespace efs::cli {
namespace {

namespace stdfs = std::filesystem;

bool is_regular_file(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

bool is_job_file_name(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

std::string receipt_in(const std::string& directory, const std::string& job) {
  return (directory.empty() ? "" : directory + "/") + stage::receipt_name(job);
}

// The receipt of an instance that efs still knows. A stop that could not write its receipt to
// results-dir has left it in the directory of the instance.
Result<std::string> receipt_of_instance(const control::Instance& instance) {
  if (std::string own = instance.directory + "/receipt.json"; is_regular_file(own)) {
    return own;
  }
  std::string results;
  if (instance.alive) {
    const auto status = control::replies::from_json<control::replies::Status>(status_of(instance));
    results = status.job.results_dir;
    if (const std::string& state = status.progress.state; state != "unsaved") {
      return fail(EBUSY, instance.name + " is " + state +
                             ": its report comes with its receipt. See: efs status " +
                             instance.name);
    }
  } else if (const auto manifest = manifest_of(instance)) {
    results = manifest->results_dir;
  }
  std::string path = receipt_in(results, instance.name);
  return results.empty() || !is_regular_file(path)
             ? Result<std::string>(fail(ENOENT, "no receipt of " + instance.name + " is there yet"))
             : path;
}

// The receipt that a job file leads to.
Result<std::string> receipt_of_job_file(const std::string& job_file) {
  const auto user = find_user(std::to_string(::geteuid()));
  if (!user) {
    return std::unexpected(user.error());
  }
  auto config = config::load_for_user(job_file, {}, *user);
  if (!config) {
    return fail(EINVAL, job_file + " has problems. See: efs check " + job_file);
  }
  choose_default_name(*config, ::geteuid());
  if (config->results_dir.empty()) {
    return fail(ENOENT, job_file + " names no results-dir, so its jobs leave no receipt");
  }
  return receipt_in(config->results_dir, config->name);
}

Result<std::string> only_receipt_here() {
  std::vector<std::string> found;
  std::error_code problem;
  for (stdfs::directory_iterator it(".", problem), end; !problem && it != end;
       it.increment(problem)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("efs-receipt-") && stage::is_receipt_name(name)) {
      found.push_back(name);
    }
  }
  if (found.size() == 1) {
    return found.front();
  }
  return fail(found.empty() ? ENOENT : EINVAL,
              (found.empty() ? std::string("no receipt is") : "several receipts are") +
                  " in this directory; name a receipt, a job file or an instance");
}

// Returns the path of the receipt.
Result<std::string> path_of_receipt(const std::string& which) {
  if (which.empty()) {
    return only_receipt_here();
  }
  if (is_regular_file(which) && !is_job_file_name(which)) {
    return which;
  }
  if (stdfs::is_directory(which)) {
    return fail(EISDIR, which + ": is a directory; name the receipt in it");
  }
  const auto instance = find_instance(which, Meant::dead);
  if (instance) {
    return receipt_of_instance(*instance);
  }
  if (is_regular_file(which)) {
    return receipt_of_job_file(which);
  }
  if (std::string here = receipt_in("", which); !which.contains('/') && is_regular_file(here)) {
    return here;
  }
  return fail(ENOENT,
              which + ": is neither a receipt nor a job file, and no instance has the name");
}

}  // namespace

Result<FoundReceipt> find_receipt(const std::string& which) {
  auto path = path_of_receipt(which);
  if (!path) {
    return std::unexpected(path.error());
  }
  auto receipt = stage::read_receipt(*path);
  if (!receipt) {
    return std::unexpected(receipt.error());
  }
  stage::add_missed_names(*receipt, *path);
  return FoundReceipt{.path = std::move(*path), .receipt = std::move(*receipt)};
}

}  // namespace efs::cli
