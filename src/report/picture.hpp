// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The pictures of a report as inline SVG. Each has a title and a description for readers that do
// not see it, and is "" if there is nothing to draw.

#include <string>
#include <string_view>

#include "report/report.hpp"

namespace efs::report {

/// The text as content of an element or of a quoted attribute: printable UTF-8 without the
/// characters that have a meaning there. Any bytes may be given.
std::string as_html(std::string_view text);

std::string time_line_picture(const Report& report);
std::string space_picture(const Report& report);
std::string opens_picture(const Report& report);

}  // namespace efs::report
