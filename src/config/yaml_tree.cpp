// SPDX-License-Identifier: BSD-3-Clause
#include "config/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.hpp"

namespace efs::config {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
constexpr std::size_t longest_shown = 60;
constexpr std::size_t deepest = 32;  // the grammar needs five levels

Mark to_mark(const YAML::Mark& mark) {
  if (mark.is_null()) {
    return {};
  }
  return {mark.line + 1, mark.column + 1};
}

// Ends a parse from inside its events; read_yaml() returns its problem as a value.
struct Refusal {
  Problem problem;
};

[[noreturn]] void refuse(const YAML::Mark& mark, std::string text, std::string suggestion) {
  const auto place = to_mark(mark);
  throw Refusal{{place.line, place.column, std::move(text), std::move(suggestion)}};
}

// Returns whether the quoted scalar at the front of `text` is closed. yaml-cpp accepts a newline at
// the end of the file as a closing quote, and so half a path as a path.
bool is_closed(std::string_view text) {
  const char quote = text.front();
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || !text.substr(i + 1).starts_with('\'')) {
        return true;
      }
      ++i;  // '' is a quote inside single quotes
    }
  }
  return false;
}

// Finds an odd blank or quotation mark at the ends of an unquoted value. Text copied from a web
// page has these.
std::optional<OddCharacter> odd_end(std::string_view value) {
  const auto first = find_odd(value);
  if (!first || first->at == 0) {
    return first;
  }
  // Find the last character: a lead byte and up to three continuation bytes.
  std::size_t at = value.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(value[at]) & 0xC0) == 0x80) {
    --at;
  }
  auto last = find_odd(value.substr(at));
  if (last) {
    last->at = at;
  }
  return last;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : text_(text) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) {
      refuse(mark, "a job file holds one YAML document only",
             "remove what follows the second '---'");
    }
  }

  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, anchor, YamlNode::Kind::null);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_alias(mark); }

  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuse_alias(mark); }

  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    const auto source = text_.substr(std::min(static_cast<std::size_t>(mark.pos), text_.size()));
    const bool is_quoted = source.starts_with('"') || source.starts_with('\'');
    if (is_quoted && !is_closed(source)) {
      refuse(mark, "a quote that is never closed", "close it; is the file cut off?");
    }
    if (const auto odd = is_quoted ? std::nullopt : odd_end(value)) {
      refuse_odd(mark, value, *odd);
    }
    add(mark, anchor, YamlNode::Kind::scalar).text = value;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlNode::Kind::sequence);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, YamlNode::Kind::map);
  }

  void OnSequenceEnd() override { path_.pop_back(); }

  void OnMapEnd() override { path_.pop_back(); }

 private:
  [[noreturn]] static void refuse_alias(const YAML::Mark& mark) {
    refuse(mark, "YAML anchors and aliases (&name, *name) are not supported",
           "write the value out; quote a value that begins with * or &");
  }

  // Columns count bytes. Quoted values are not checked.
  [[noreturn]] static void refuse_odd(YAML::Mark mark, const std::string& value,
                                      const OddCharacter& odd) {
    if (!value.contains('\n')) {
      mark.column += static_cast<int>(odd.at);
    }
    const std::string shown = "'" + printable(value.substr(0, longest_shown)) + "'";
    refuse(mark, odd.name + ", at the " + (odd.at == 0 ? "beginning" : "end") + " of " + shown,
           "remove it, or type the plain character; a value that needs it goes in double quotes");
  }

  // A node's address stays valid while it is open: only the innermost open node grows.
  YamlNode& add(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (anchor != YAML::NullAnchor) {
      refuse_alias(mark);
    }
    YamlNode& node = path_.empty() ? root_ : path_.back()->items.emplace_back();
    node.kind = kind;
    node.mark = to_mark(mark);
    return node;
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (path_.size() >= deepest) {
      refuse(mark, "nested too deeply", "a job file needs five levels at most");
    }
    path_.push_back(&add(mark, anchor, kind));
  }

  std::string_view text_;
  YamlNode root_;
  std::vector<YamlNode*> path_;  // the open nodes, outermost first
  int documents_ = 0;
};

// Returns the length of the UTF-8 sequence at the front of `text`; 0 if there is none. (Accepts
// overlong forms: they are harmless here.)
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      return 0;
    }
  }
  return length;
}

// yaml-cpp takes some control characters for the end of the file, and replaces invalid UTF-8. Both
// would silently change a path.
std::optional<Problem> refuse_bytes(std::string_view text) {
  Mark place{1, 1};
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const bool control =
        (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F;
    if (control) {
      return Problem{place.line, place.column, "a control character",
                     "remove it; job files are plain text"};
    }
    const auto length = utf8_length(text);
    if (length == 0) {
      return Problem{place.line, place.column, "not valid UTF-8", "save the file as UTF-8"};
    }
    text.remove_prefix(length);
    // Columns count bytes, as in yaml-cpp.
    place = byte == '\n' ? Mark{place.line + 1, 1}
                         : Mark{place.line, place.column + static_cast<int>(length)};
  }
  return std::nullopt;
}

// Describes an odd character in the line that the parser rejected, or in the line above it.
std::string odd_note_near(std::string_view text, int line) {
  std::string note;
  for (int number = 1; number <= line && !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    if (number < line - 1) {
      text.remove_prefix(std::min(end + 1, text.size()));
      continue;
    }
    if (const auto odd = find_odd(text.substr(0, end))) {
      note = "; line " + std::to_string(number) + ", column " + std::to_string(odd->at + 1) +
             " holds " + odd->name;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return note;
}

// Explains the usual mistakes behind the parser's terse messages.
std::string way_out(std::string_view message) {
  if (message.contains("EOF in scalar")) {
    return "a quote is never closed; is the file cut off?";
  }
  if (message.contains("tab")) {
    return "indent with spaces";
  }
  if (message.contains("alias") || message.contains("anchor")) {
    return "quote a value that begins with * or &";
  }
  if (message.contains("end of sequence flow") || message.contains("end of map flow")) {
    return "a bracket or a comma is missing before this place";
  }
  if (message.contains("illegal map value") || message.contains("end of map not found")) {
    return "check the indentation, and that a space follows each colon";
  }
  if (message.contains("tag")) {
    return "quote a value that begins with !";
  }
  return "quote values that hold characters with a meaning in YAML: * & ! [ ] { } # : ,";
}

}  // namespace

std::expected<YamlNode, Problem> read_yaml(const std::string& file) {
  // Some editors write a byte order mark at the begin of a file.
  const std::string text =
      file.substr(file.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
  if (auto problem = refuse_bytes(text)) {
    return std::unexpected(std::move(*problem));
  }
  TreeBuilder builder(text);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (Refusal& refusal) {
    return std::unexpected(std::move(refusal.problem));
  } catch (const YAML::Exception& error) {
    const auto place = to_mark(error.mark);
    return std::unexpected(Problem{place.line, place.column,
                                   "not valid YAML: " + error.msg + odd_note_near(text, place.line),
                                   way_out(error.msg)});
  }
  return builder.take();
}

}  // namespace efs::config
