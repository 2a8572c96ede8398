// SPDX-License-Identifier: BSD-3-Clause
// The format of a ticket's file.
#include "base/json_text.hpp"
#include "queue/directory.hpp"

namespace efs::queue {
namespace {

using Json = nlohmann::json;
constexpr std::size_t line_length = 2048;
constexpr std::size_t longest_word = 255;

}  // namespace

std::string ticket_name(const Ticket& ticket) {
  std::string number = std::to_string(ticket.number);
  number.insert(0, 20 - std::min<std::size_t>(20, number.size()), '0');
  return std::string(name_of(ticket.direction)) + "/" + (ticket.slot < 0 ? "w" : "h") + number;
}

std::string encode(const Ticket& t) {
  const Json line{{"number", t.number},
                  {"direction", name_of(t.direction)},
                  {"job", t.job.substr(0, longest_word)},
                  {"node", t.node.substr(0, longest_word)},
                  {"uid", t.uid},
                  {"bytes", t.bytes},
                  {"done", t.done},
                  {"drawn", t.drawn},
                  {"deadline", t.deadline},
                  {"granted", t.granted},
                  {"slot", t.slot}};
  std::string text = json_to_text(line);
  if (text.size() + 1 < line_length) {
    text.append(line_length - 1 - text.size(), ' ');
  }
  return text + "\n";
}

std::optional<Ticket> decode(const std::string& text) {
  const Json line = json_from_text(text);
  if (!line.is_object()) {
    return std::nullopt;
  }
  try {
    Ticket t;
    t.number = line.at("number").get<std::uint64_t>();
    t.direction = line.at("direction").get<std::string>() == "out" ? Direction::out : Direction::in;
    t.job = line.at("job").get<std::string>();
    t.node = line.at("node").get<std::string>();
    t.uid = line.at("uid").get<std::uint32_t>();
    t.bytes = line.at("bytes").get<std::uint64_t>();
    t.done = line.at("done").get<std::uint64_t>();
    t.drawn = line.at("drawn").get<Nanoseconds>();
    t.deadline = line.at("deadline").get<Nanoseconds>();
    t.granted = line.at("granted").get<Nanoseconds>();
    t.slot = line.at("slot").get<int>();
    return t;
  } catch (const Json::exception&) {  // not a ticket
    return std::nullopt;
  }
}

}  // namespace efs::queue
