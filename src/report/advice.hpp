// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "report/report.hpp"

namespace efs::report {

/// The changes of the job file that the receipt suggests, the most useful first.
std::vector<Advice> advice_for(const stage::Receipt& receipt);

}  // namespace efs::report
