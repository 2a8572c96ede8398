// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/look_ahead.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace efs::daemon {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The digits at the beginning, without leading zeros; cuts them off the text.
std::string_view take_number(std::string_view& text) {
  const auto* const end = std::ranges::find_if_not(text, is_digit);
  std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

}  // namespace

bool comes_before(const std::string& a, const std::string& b) {
  std::string_view left = a, right = b;
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      const std::string_view x = take_number(left), y = take_number(right);
      if (x.size() != y.size()) {
        return x.size() < y.size();
      }
      if (x != y) {
        return x < y;
      }
      continue;
    }
    if (left.front() != right.front()) {
      return static_cast<unsigned char>(left.front()) < static_cast<unsigned char>(right.front());
    }
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  return left.size() != right.size() ? left.size() < right.size() : a < b;
}

LookAhead::Followed& LookAhead::follow(std::uint64_t directory) {
  const auto known = std::ranges::find(followed_, directory, &Followed::directory);
  if (known != followed_.end()) {
    std::rotate(known, std::next(known), followed_.end());
    return followed_.back();
  }
  return followed_.emplace_back(Followed{.directory = directory});
}

void LookAhead::list(Followed& followed, const FileOrder& names) {
  std::vector<FileOrder::File> files = names.files_in(followed.directory);
  const auto copy = [&files](Order& order) {
    order.reserve(files.size());
    for (const auto& file : files) {
      order.push_back({.ino = file.ino, .size = file.size});
    }
  };
  auto& [by_number, by_name, as_listed] = followed.orders;
  copy(as_listed);
  std::ranges::sort(files, {}, &FileOrder::File::name);
  copy(by_name);
  std::ranges::sort(files, comes_before, &FileOrder::File::name);
  copy(by_number);
}

// The programs may be several, which take turns.
bool LookAhead::goes_on(Followed& followed, std::uint64_t ino) const {
  if (followed.window == 0) {
    return false;
  }
  const Order& order = followed.orders[followed.order];
  const auto found = std::ranges::find(order, ino, &File::ino);
  const auto position = static_cast<std::size_t>(found - order.begin());
  if (found == order.end() || position > followed.front || position + behind < followed.at) {
    return false;
  }
  followed.at = std::max(followed.at, position + 1);
  followed.front = std::max(followed.front, followed.at);
  return true;
}

bool LookAhead::begins(Followed& followed, std::uint64_t ino) {
  for (std::size_t i = 0; i < followed.orders.size(); ++i) {
    const Order& order = followed.orders[i];
    const auto last = std::ranges::find(order, followed.last, &File::ino);
    if (last == order.end() || std::next(last) == order.end() || std::next(last)->ino != ino) {
      continue;
    }
    followed.order = i;
    followed.at = followed.front = static_cast<std::size_t>(last - order.begin()) + 2;
    return true;
  }
  return false;
}

void LookAhead::end(Followed& followed, std::vector<std::uint64_t>& forget) {
  for (const auto& [ino, size] : followed.expected) {
    forget.push_back(ino);
  }
  for (const auto& [ino, size] : std::exchange(followed.expected, {})) {
    expected_bytes_ -= size;
  }
  followed.window = 0;
}

// Half a window is left before more is fetched: each call looks at several files.
void LookAhead::extend(Followed& followed, std::uint64_t room, const FileOrder& names, Next& next) {
  const Order& order = followed.orders[followed.order];
  if (followed.expected.size() > followed.window / 2) {
    return;
  }
  while (followed.expected.size() < followed.window && followed.front < order.size()) {
    const File& file = order[followed.front];
    if (names.is_remote(file.ino)) {
      if (file.size > room - std::min(room, expected_bytes_)) {
        return;
      }
      next.fetch.push_back(file.ino);
      followed.expected.emplace(file.ino, file.size);
      expected_bytes_ += file.size;
    }
    ++followed.front;
  }
}

LookAhead::Next LookAhead::opened(std::uint64_t ino, std::uint64_t room, const FileOrder& names) {
  Next next;
  const std::uint64_t directory = names.directory_of(ino);
  if (directory == 0) {
    return next;
  }
  Followed& followed = follow(directory);
  const std::uint64_t last = std::exchange(followed.last, ino);
  if (last != 0 && last != ino) {
    if (followed.orders.front().empty()) {
      list(followed, names);
    }
    if (const auto expected = followed.expected.find(ino); expected != followed.expected.end()) {
      expected_bytes_ -= expected->second;
      followed.expected.erase(expected);
    }
    if (goes_on(followed, ino)) {
      followed.window = std::min(2 * followed.window, most_files);
      extend(followed, room, names, next);
    } else {
      end(followed, next.forget);
      followed.last = last;
      if (begins(followed, ino)) {
        followed.window = 2;
        extend(followed, room, names, next);
      }
      followed.last = ino;
    }
  }
  if (followed_.size() > most_followed) {
    end(followed_.front(), next.forget);
    followed_.pop_front();
  }
  return next;
}

std::vector<std::uint64_t> LookAhead::end_all() {
  std::vector<std::uint64_t> forget;
  for (auto& followed : followed_) {
    end(followed, forget);
  }
  return forget;
}

}  // namespace efs::daemon
