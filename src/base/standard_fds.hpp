#pragma once

// What a process has for standard input, output and error.

namespace efs {

/// Opens /dev/null where one of the three is closed, so that no other descriptor gets its number
/// and is written to, or replaced, by who means it. For main(), before anything is opened.
void fill_standard_fds();

}  // namespace efs
