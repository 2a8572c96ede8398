// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a monitoring system sends and gets when it scrapes metrics over HTTP. Pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace efs::cli {

/// The format of metrics. openmetrics: OpenMetrics 1.0. text: the older format of Prometheus.
enum class ScrapeFormat : std::uint8_t { openmetrics, text };

/// The answer to a request. Only status 200 has metrics.
struct ScrapeAnswer {
  int status = 200;
  ScrapeFormat format = ScrapeFormat::text;
};

/// The longest head of a request in bytes.
inline constexpr std::size_t longest_scrape_request = 8192;

/// Judges what a client has sent. Returns std::nullopt if the head of the request is not yet whole,
/// and an answer with an error's status as soon as it is too long. Only GET of /metrics gets
/// metrics, in OpenMetrics if the client prefers it.
std::optional<ScrapeAnswer> judge_scrape(std::string_view received);

/// Returns the status line and the header of an answer with a body of `length` bytes. The
/// connection ends after the answer.
std::string head_of_answer(const ScrapeAnswer& answer, std::size_t length);

/// Returns the body for a status other than 200: one line.
std::string text_of_status(int status);

}  // namespace efs::cli
