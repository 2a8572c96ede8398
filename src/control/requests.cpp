// SPDX-License-Identifier: BSD-3-Clause
#include "control/requests.hpp"

#include "control/fields.hpp"

namespace efs::control::requests {

using fields::Is;
using fields::Reader;
using fields::Writer;

void fields_of(Is<Status> auto& it, auto&& see) {
  see("changed", it.changed);
}

void fields_of(Is<Wait> auto& it, auto&& see) {
  see("starter", it.starter);
}

void fields_of(Is<WaitEnd> auto& it, auto&& see) {
  see("keep", it.keep);
}

void fields_of(Is<Stop> auto& it, auto&& see) {
  see("supervisor", it.supervisor);
  see("stage_out", it.stage_out);
  see("keep", it.keep);
  see("cut_off", it.cut_off);
  see("merge", it.merge);
  see("receipt", it.receipt);
  see("deadline", it.deadline);
  see("asked_ago", it.asked_ago);
}

void fields_of(Is<Load> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see("replace", it.replace);
  see("force", it.force);
  see("backend", it.backend);
  see("offset", it.offset);
  see("size", it.size);
}

void fields_of(Is<Unload> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see("as_is", it.as_is);
  see("remove", it.remove);
  see("backend", it.backend);
  see("offset", it.offset);
  see("size", it.size);
}

void fields_of(Is<Fetch> auto& it, auto&& see) {
  see.required("paths", it.paths);
}

void fields_of(Is<Move> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see.required("to", it.to);
}

void fields_of(Is<WaitInputs> auto& it, auto&& see) {
  see("timeout_ms", it.timeout_ms);
}

void fields_of(Is<WaitTask> auto& it, auto&& see) {
  see.required("task", it.task);
  see("timeout_ms", it.timeout_ms);
}

void fields_of(Is<Cancel> auto& it, auto&& see) {
  see.required("task", it.task);
}

void fields_of(Is<List> auto& it, auto&& see) {
  see("paths", it.paths);
}

void fields_of(Is<Explain> auto& it, auto&& see) {
  see.required("path", it.path);
}

void fields_of(Is<Set> auto& it, auto&& see) {
  see.required("class", it.file_class);
  see.required("paths", it.paths);
}

void fields_of(Is<Pin> auto& it, auto&& see) {
  see.required("paths", it.paths);
  see("pinned", it.pinned);
}

void fields_of(Is<Limit> auto& it, auto&& see) {
  see("read", it.read);
  see("write", it.write);
  see("ops", it.ops);
}

namespace {

/// Collects the names of the fields of a struct.
struct Names {
  void operator()(const char* name, const auto& /*value*/) { all.emplace_back(name); }

  void required(const char* name, const auto& /*value*/) { all.emplace_back(name); }

  std::vector<std::string> all;
};

}  // namespace

template <typename Request>
std::vector<std::string> field_names(const Request& request) {
  Names names;
  fields_of(request, names);
  return names.all;
}

std::string verb_of(const Json& request) {
  std::string verb;
  Reader{request}("verb", verb);
  return verb;
}

template <typename Request>
Json to_json(const Request& request) {
  Json line{{"verb", Request::verb}};
  fields_of(request, Writer{line});
  return line;
}

template <typename Request>
Request from_json(const Json& line) {
  Request request;
  fields_of(request, Reader{line});
  return request;
}

template Json to_json(const Status&);
template Json to_json(const Wait&);
template Json to_json(const WaitEnd&);
template Json to_json(const Stop&);
template Json to_json(const Load&);
template Json to_json(const Unload&);
template Json to_json(const Fetch&);
template Json to_json(const Move&);
template Json to_json(const WaitInputs&);
template Json to_json(const WaitTask&);
template Json to_json(const Cancel&);
template Json to_json(const List&);
template Json to_json(const Explain&);
template Json to_json(const Set&);
template Json to_json(const Pin&);
template Json to_json(const Limit&);

template Status from_json(const Json&);
template Wait from_json(const Json&);
template WaitEnd from_json(const Json&);
template Stop from_json(const Json&);
template Load from_json(const Json&);
template Unload from_json(const Json&);
template Fetch from_json(const Json&);
template Move from_json(const Json&);
template WaitInputs from_json(const Json&);
template WaitTask from_json(const Json&);
template Cancel from_json(const Json&);
template List from_json(const Json&);
template Explain from_json(const Json&);
template Set from_json(const Json&);
template Pin from_json(const Json&);
template Limit from_json(const Json&);

template std::vector<std::string> field_names(const Status&);
template std::vector<std::string> field_names(const Wait&);
template std::vector<std::string> field_names(const WaitEnd&);
template std::vector<std::string> field_names(const Stop&);
template std::vector<std::string> field_names(const Load&);
template std::vector<std::string> field_names(const Unload&);
template std::vector<std::string> field_names(const Fetch&);
template std::vector<std::string> field_names(const Move&);
template std::vector<std::string> field_names(const WaitInputs&);
template std::vector<std::string> field_names(const WaitTask&);
template std::vector<std::string> field_names(const Cancel&);
template std::vector<std::string> field_names(const List&);
template std::vector<std::string> field_names(const Explain&);
template std::vector<std::string> field_names(const Set&);
template std::vector<std::string> field_names(const Pin&);
template std::vector<std::string> field_names(const Limit&);

}  // namespace efs::control::requests
