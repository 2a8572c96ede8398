// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The control verbs for files while programs run: load, unload, fetch, move, wait-inputs,
// wait-task, cancel, ls, explain, set, pin, limit.

#include <string>
#include <vector>

#include "control/requests.hpp"
#include "control/server.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/job_status.hpp"
#include "daemon/tasks.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {

/// Thread-safe.
class FileVerbs {
 public:
  /// All outlive this object, and `transfers` and `fetches` outlive the tasks.
  struct Parts {
    const config::JobConfig& config;
    Tasks& tasks;
    BufferAccess& buffer;
    LiveTransfers& transfers;
    FetchControl& fetches;
    MountControl& mount;
    const JobStatus& status;
  };

  explicit FileVerbs(Parts parts) : its_(parts) {}

  /// Returns the result line. Throws as control::requests::from_json().
  control::Json handle(const std::string& verb, const control::Json& request,
                       const control::Server::Progress& progress);

 private:
  control::Json handle_in(const OpenBuffer& buffer, const std::string& verb,
                          const control::Json& request);
  control::Json load(const control::requests::Load& request);
  control::Json unload(const control::requests::Unload& request);
  control::Json fetch(const OpenBuffer& buffer, const control::requests::Fetch& request);
  control::Json move(const OpenBuffer& buffer, const control::requests::Move& request);
  control::Json wait_inputs(const control::requests::WaitInputs& request,
                            const control::Server::Progress& progress);
  control::Json list(const control::requests::List& request,
                     const control::Server::Progress& progress);
  control::Json explain(const OpenBuffer& buffer, const control::requests::Explain& request);
  control::Json set(const OpenBuffer& buffer, const control::requests::Set& request);
  control::Json pin(const OpenBuffer& buffer, const control::requests::Pin& request);
  control::Json wait_task(const control::requests::WaitTask& request,
                          const control::Server::Progress& progress);
  Result<std::vector<std::string>> names_in(const std::vector<std::string>& paths) const;
  Result<std::vector<std::string>> names_of_task(const std::vector<std::string>& paths,
                                                 const std::string& backend) const;
  static Result<std::vector<fs::WalkItem>> items_in(const OpenBuffer& buffer,
                                                    const std::vector<std::string>& names);

  const Parts its_;
};

}  // namespace efs::daemon
