#include "daemon/stop_clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>

#include "base/log.hpp"
#include "daemon/status_file.hpp"

namespace efs::daemon {

StopClock::StopClock(const std::string& directory, bool is_successor) : file_(directory + "/stop") {
  if (!is_successor) over();
}

double StopClock::elapsed() {
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t begin = 0;
  if (std::ifstream(file_) >> begin) return static_cast<double>(std::max<std::int64_t>(0, now - begin)) * 1e-9;
  if (const Status noted = replace_file(file_, std::to_string(now)); !noted) log::warn("event=stop_not_noted note=\"should the worker die, its deadline begins anew\" reason=\"{}\"", describe(noted.error()));
  return 0;
}

void StopClock::over() { (void)::unlink(file_.c_str()); }

}  // namespace efs::daemon
