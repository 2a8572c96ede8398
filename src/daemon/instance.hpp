#pragma once
// One job's life in the worker: plan, stage in, mount, serve, unmount, stage out. Runs as the job's user.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "config/job_config.hpp"
#include "control/server.hpp"
#include "daemon/store_setup.hpp"
#include "daemon/supervisor_client.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "fuse/session.hpp"
#include "stage/planner.hpp"
#include "stage/receipt.hpp"
#include "stage/progress.hpp"

namespace efs::daemon {

struct InstanceOptions {
  config::JobConfig config;
  std::string directory;      // of the instance: the control socket goes there
  uid_t owner = 0;
  bool privileged = false;    // the supervisor is root
  bool daemon_io = false;     // no passthrough, whatever the kernel offers
  std::uint64_t mount_flags = 0;
  std::string source;         // as mount(8) shows it
  pid_t supervisor = 0;
};

/// `unsaved`: unmounted, but results are still only in the buffer; a stop tries again.
enum class State : std::uint8_t { planning, staging_in, running, unmounting, staging_out, unsaved, ended, failed };
const char* name_of(State state);

class Instance {
 public:
  Instance(InstanceOptions options, SupervisorClient& supervisor);
  ~Instance();

  /// Opens the control socket. After this, run().
  Status listen();
  /// The whole life; ends when the results are back (or given up). The exit code of the worker.
  int run();
  /// Asks for a stop, as `efs stop` does; for signals.
  struct StopRequest {
    bool stage_out = true;
    bool keep = false;  // leave the store, for the next start
    std::optional<std::chrono::steady_clock::time_point> until;  // be gone by then; what is not saved stays in the image
  };
  void request_stop(const StopRequest& request);

 private:

  Status start();
  Status prepare_mount_point();
  Status open_filesystem();
  Status plan_and_stage_in();
  Status subtract_what_is_there(stage::Plan& plan, fs::Staging& staging);
  Status mount();
  bool serve_until_stopped();
  Status unmount();
  /// True when the life is over: all is back, or time is up.
  bool stage_out(const StopRequest& request);
  void book_saved(const stage::Receipt& receipt);
  void leave_image(image::Left left);
  void keep_house();
  void tear_down();
  void close_socket() const;
  control::Json handle(const control::Json& request, const control::Server::Progress& progress);
  control::Json handle_wait(bool starter, const control::Server::Progress& progress);
  control::Json handle_stop(const control::Json& request, const control::Server::Progress& progress);
  control::Json status_now();
  control::Json progress_now();
  void enter(State state);
  void finish_stop(control::Json outcome);

  const InstanceOptions options_;
  SupervisorClient& supervisor_;
  std::unique_ptr<control::Server> server_;
  Store store_;
  std::unique_ptr<fs::Filesystem> filesystem_;
  std::unique_ptr<fuse::Session> session_;
  std::jthread session_thread_;
  UniqueFd mount_point_;
  bool made_mount_point_ = false;
  std::atomic<bool> keep_image_{false};        // the store stays when this process ends
  std::jthread housekeeper_;
  stage::Progress progress_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();

  std::mutex mutex_;  // rank 5: guards what follows; nothing is called under it
  std::condition_variable changed_;
  State state_ = State::planning;
  std::optional<StopRequest> stop_request_;
  std::uint64_t stops_done_ = 0;        // how many stop requests have an outcome
  control::Json last_outcome_;
  control::Json start_failure_;
  bool failure_told_ = false;
  bool session_ended_ = false;
  std::atomic<bool> ready_{false};      // store_, filesystem_ and session_ may be looked at
};

}  // namespace efs::daemon
