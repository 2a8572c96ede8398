// SPDX-License-Identifier: BSD-3-Clause
#include "control/requests.hpp"

#include <algorithm>
#include <concepts>
#include <stdexcept>
#include <type_traits>

namespace efs::control::requests {
namespace {

/// `T` is `Request`, perhaps const: one list of fields serves to read and to write.
template <typename T, typename Request>
concept Is = std::same_as<std::remove_const_t<T>, Request>;

void each_field(Is<Status> auto& it, auto&& see) {
  see("changed", it.changed);
}

void each_field(Is<Wait> auto& it, auto&& see) {
  see("starter", it.starter);
}

void each_field(Is<WaitEnd> auto& it, auto&& see) {
  see("keep", it.keep);
}

void each_field(Is<Stop> auto& it, auto&& see) {
  see("supervisor", it.supervisor);
  see("stage_out", it.stage_out);
  see("keep", it.keep);
  see("cut_off", it.cut_off);
  see("merge", it.merge);
  see("receipt", it.receipt);
  see("deadline", it.deadline);
  see("asked_ago", it.asked_ago);
}

void each_field(Is<Load> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see("replace", it.replace);
  see("force", it.force);
  see("backend", it.backend);
  see("offset", it.offset);
  see("size", it.size);
}

void each_field(Is<Unload> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see("as_is", it.as_is);
  see("remove", it.remove);
  see("backend", it.backend);
  see("offset", it.offset);
  see("size", it.size);
}

void each_field(Is<WaitTask> auto& it, auto&& see) {
  see.required("task", it.task);
  see("timeout_ms", it.timeout_ms);
}

void each_field(Is<Cancel> auto& it, auto&& see) {
  see.required("task", it.task);
}

void each_field(Is<List> auto& it, auto&& see) {
  see("paths", it.paths);
}

void each_field(Is<Explain> auto& it, auto&& see) {
  see.required("path", it.path);
}

void each_field(Is<Set> auto& it, auto&& see) {
  see.required("class", it.file_class);
  see.required("paths", it.paths);
}

void each_field(Is<Limit> auto& it, auto&& see) {
  see("read", it.read);
  see("write", it.write);
  see("ops", it.ops);
}

struct Writer {
  template <typename T>
  void operator()(const char* name, const T& value) {
    line[name] = value;
  }

  void operator()(const char* name, const std::optional<std::uint64_t>& value) {
    if (value) {
      line[name] = *value;
    }
  }

  void required(const char* name, const auto& value) { (*this)(name, value); }

  Json& line;
};

[[noreturn]] void refuse(const std::string& name, const char* why) {
  throw std::invalid_argument(name + why);
}

void read(const std::string& name, const Json& from, bool& value) {
  if (!from.is_boolean()) {
    refuse(name, " is neither true nor false");
  }
  value = from.get<bool>();
}

// The JSON library would convert a negative number, a fraction or a too large number without an
// error.
void read(const std::string& name, const Json& from, std::uint64_t& value) {
  if (!from.is_number_unsigned()) {
    refuse(name, " is not a whole number");
  }
  value = from.get<std::uint64_t>();
}

void read(const std::string& name, const Json& from, std::optional<std::uint64_t>& value) {
  read(name, from, value.emplace());
}

void read(const std::string& name, const Json& from, double& value) {
  if (!from.is_number()) {
    refuse(name, " is not a number");
  }
  value = from.get<double>();
}

void read(const std::string& name, const Json& from, std::string& value) {
  if (!from.is_string()) {
    refuse(name, " is not a text");
  }
  value = from.get<std::string>();
}

void read(const std::string& name, const Json& from, std::vector<std::string>& value) {
  if (!from.is_array() || !std::ranges::all_of(from, &Json::is_string)) {
    refuse(name, " is not a list of texts");
  }
  value = from.get<std::vector<std::string>>();
}

struct Reader {
  void operator()(const char* name, auto& value) const {
    if (const auto found = line.find(name); found != line.end()) {
      read(name, *found, value);
    }
  }

  void required(const char* name, auto& value) const {
    if (!line.contains(name)) {
      refuse(name, " is missing");
    }
    (*this)(name, value);
  }

  const Json& line;
};

}  // namespace

std::string verb_of(const Json& request) {
  std::string verb;
  Reader{request}("verb", verb);
  return verb;
}

template <typename Request>
Json to_json(const Request& request) {
  Json line{{"verb", Request::verb}};
  each_field(request, Writer{line});
  return line;
}

template <typename Request>
Request from_json(const Json& line) {
  Request request;
  each_field(request, Reader{line});
  return request;
}

template Json to_json(const Status&);
template Json to_json(const Wait&);
template Json to_json(const WaitEnd&);
template Json to_json(const Stop&);
template Json to_json(const Load&);
template Json to_json(const Unload&);
template Json to_json(const WaitTask&);
template Json to_json(const Cancel&);
template Json to_json(const List&);
template Json to_json(const Explain&);
template Json to_json(const Set&);
template Json to_json(const Limit&);

template Status from_json(const Json&);
template Wait from_json(const Json&);
template WaitEnd from_json(const Json&);
template Stop from_json(const Json&);
template Load from_json(const Json&);
template Unload from_json(const Json&);
template WaitTask from_json(const Json&);
template Cancel from_json(const Json&);
template List from_json(const Json&);
template Explain from_json(const Json&);
template Set from_json(const Json&);
template Limit from_json(const Json&);

}  // namespace efs::control::requests
