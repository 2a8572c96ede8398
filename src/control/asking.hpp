// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Requests to an instance whose worker may die during the request.

#include <chrono>

#include "control/client.hpp"
#include "control/instances.hpp"

namespace efs::control {

/// Returns whether this is an error that a client sees when a worker died or is being replaced. A
/// successor then has the worker's state.
bool is_lost(int code);

/// Connects to the instance as Client::connect() does. If the worker is just being replaced, waits
/// up to `patience` for the successor. Safe before any request, because no request has been sent
/// yet.
Result<Client> connect_soon(const Instance& instance, int seconds,
                            std::chrono::seconds patience = std::chrono::seconds(10));

/// Sends a request to the instance and returns its answer. If the worker dies meanwhile, sends the
/// request again to the successor, once that has replayed the journal; the supervisor starts a
/// successor as long as it lives.
///
/// A refusal is an answer (`ok` is false). An error here is a communication error. Returns
/// ETIMEDOUT if the instance sends nothing for `seconds`. If no worker accepts a connection for
/// `patience`, returns the last error. A `deadline` in the request, in seconds, counts from this
/// call. A successor receives the rest of the deadline, and in `asked_ago` the elapsed seconds. A
/// `deadline` of 0 means none in the request; the job file may have one.
Result<Json> ask_until_answered(const Instance& instance, const Json& request, int seconds,
                                const std::function<void(const Json&)>& progress = {},
                                std::chrono::seconds patience = std::chrono::minutes(2));

}  // namespace efs::control
