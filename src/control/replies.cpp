// SPDX-License-Identifier: BSD-3-Clause
#include "control/replies.hpp"

#include <concepts>
#include <type_traits>

namespace efs::control::replies {
namespace {

/// `T` is `Reply`, perhaps const: one list of fields serves to read and to write.
template <typename T, typename Reply>
concept IsReply = std::same_as<std::remove_const_t<T>, Reply>;

void fields_of(IsReply<Failure> auto& it, auto&& see) {
  see("code", it.code);
  see("error", it.error);
  see("lines", it.lines);
  see("exit", it.exit);
}

void fields_of(IsReply<TaskStarted> auto& it, auto&& see) {
  see("task", it.task);
}

void fields_of(IsReply<Counted> auto& it, auto&& see) {
  see("count", it.count);
}

bool fits(const Json& from, bool) {
  return from.is_boolean();
}

bool fits(const Json& from, int) {
  return from.is_number_integer();
}

bool fits(const Json& from, std::uint64_t) {
  return from.is_number_unsigned();
}

bool fits(const Json& from, const std::string&) {
  return from.is_string();
}

}  // namespace

bool is_success(const Json& line) {
  const auto ok = line.find("ok");
  return ok != line.end() && ok->is_boolean() && ok->get<bool>();
}

template <typename Reply>
Json to_json(const Reply& reply) {
  Json line{{"event", "result"}, {"ok", !std::same_as<Reply, Failure>}};
  fields_of(reply, [&](const char* name, const auto& value) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, bool>) {
      if (!value) {
        return;  // a field that is false is absent
      }
    }
    line[name] = value;
  });
  return line;
}

template <typename Reply>
Reply from_json(const Json& line) {
  Reply reply;
  fields_of(reply, [&](const char* name, auto& value) {
    if (const auto found = line.find(name); found != line.end() && fits(*found, value)) {
      found->get_to(value);
    }
  });
  return reply;
}

template Json to_json(const Failure&);
template Json to_json(const TaskStarted&);
template Json to_json(const Counted&);

template Failure from_json(const Json&);
template TaskStarted from_json(const Json&);
template Counted from_json(const Json&);

}  // namespace efs::control::replies
