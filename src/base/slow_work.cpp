// SPDX-License-Identifier: BSD-3-Clause
#include "base/slow_work.hpp"

#include <utility>

namespace efs {
namespace {

thread_local SlowWorkListener* listener_of_thread = nullptr;

}  // namespace

void slow_work_begins() {
  if (listener_of_thread != nullptr) {
    listener_of_thread->slow_work_begins();
  }
}

bool slow_work_is_heard() {
  return listener_of_thread != nullptr;
}

ListenForSlowWork::ListenForSlowWork(SlowWorkListener& listener)
    : before_(std::exchange(listener_of_thread, &listener)) {}

ListenForSlowWork::~ListenForSlowWork() {
  listener_of_thread = before_;
}

}  // namespace efs
