// SPDX-License-Identifier: BSD-3-Clause
#include "base/standard_fds.hpp"
#include "daemon/efsd.hpp"

int main(int argc, char** argv) {
  efs::fill_standard_fds();
  return efs::daemon::efsd(argc, argv);
}
