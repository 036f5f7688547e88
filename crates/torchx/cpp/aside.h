// Work that nobody waits for before the update, beside what the backward pass goes on with: gradients of weights. They are
// products that leave no gap, and sums that fill no GPU; on a stream of their own each fills what the other leaves.
#pragma once

#include "fused.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <mutex>
#include <optional>

namespace fused {

// The one lane, of the device that trains. Used from the thread of the backward pass, and joined from that of the step.
class Aside {
 public:
  static Aside& lane() {
    static Aside lane;
    return lane;
  }

  // Whether gradients may be made aside: nothing on the main stream may read them before `join`.
  void allow(bool allowed) {
    std::lock_guard guard(lock_);
    allowed_ = allowed;
  }

  // Does `work` on the lane, behind what is queued on the current stream. `inputs` are what it reads: their memory is not
  // given away before the current stream has waited for it.
  template <class Work>
  void run(std::vector<Tensor> inputs, Work work) {
    std::lock_guard guard(lock_);
    if (!allowed_ || !inputs[0].is_cuda()) return work();
    c10::impl::VirtualGuardImpl device(c10::DeviceType::CUDA);
    auto main = device.getStream(inputs[0].device());
    if (!stream_) stream_ = device.getStreamFromGlobalPool(inputs[0].device(), /*isHighPriority=*/false);
    while (pending_.size() >= BEHIND) wait_for_first(main);
    c10::Event ready(c10::DeviceType::CUDA);
    ready.record(main);
    ready.block(*stream_);
    device.exchangeStream(*stream_);
    try {
      work();
    } catch (...) {
      device.exchangeStream(main);
      throw;
    }
    device.exchangeStream(main);
    pending_.push_back({std::move(inputs), c10::Event(c10::DeviceType::CUDA)});
    pending_.back().done.record(*stream_);
  }

  // What is queued on the current stream from now on goes behind everything on the lane.
  void join() {
    std::lock_guard guard(lock_);
    if (pending_.empty()) return;
    c10::impl::VirtualGuardImpl device(c10::DeviceType::CUDA);
    auto main = device.getStream(stream_->device());
    while (!pending_.empty()) wait_for_first(main);
  }

 private:
  // Pieces of work that may be behind the main stream: more hold more memory.
  static constexpr size_t BEHIND = 4;

  struct Piece {
    std::vector<Tensor> inputs;
    c10::Event done;
  };

  void wait_for_first(const c10::Stream& main) {
    pending_.front().done.block(main);
    pending_.pop_front();
  }

  std::mutex lock_;
  bool allowed_ = false;
  std::optional<c10::Stream> stream_;
  std::deque<Piece> pending_;
};

}  // namespace fused
