// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads of the program's memory that ThreadSanitizer cannot see the order of.

#if defined(__SANITIZE_THREAD__)
#define EO_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EO_THREAD_SANITIZER 1
#endif
#endif

#ifdef EO_THREAD_SANITIZER
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace efs::objects {

/// Marks reads of this thread, while it exists, that are ordered by the write protection of the
/// kernel, or whose result is compared with the memory later.
class UnorderedReads {
 public:
#ifdef EO_THREAD_SANITIZER
  UnorderedReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }

  ~UnorderedReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
  UnorderedReads() {}
#endif
  UnorderedReads(const UnorderedReads&) = delete;
  UnorderedReads& operator=(const UnorderedReads&) = delete;
};

}  // namespace efs::objects
