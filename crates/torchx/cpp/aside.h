// Work that nobody waits for before the update, beside what the backward pass goes on with: gradients of weights. They are
// products that leave no gap, and sums that fill no GPU; on a stream of their own each fills what the other leaves.
#pragma once

#include "fused.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

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
  template <class Do>
  void run(std::vector<Tensor> inputs, Do work) {
    std::lock_guard guard(lock_);
    if (put_off(std::move(inputs), work)) begin();
  }

  // The same for what is too small to be worth an event of its own: it goes ahead of the next piece of work. What `work` writes
  // it must hold by an alias, such as `detach` makes: a gradient that is held by itself is copied by LibTorch for the weight,
  // at once, instead of being handed over.
  template <class Do>
  void later(std::vector<Tensor> inputs, Do work) {
    std::lock_guard guard(lock_);
    put_off(std::move(inputs), work);
  }

  // What is queued on the current stream from now on goes behind everything on the lane, whoever joined it before.
  void join() {
    std::lock_guard guard(lock_);
    if (!later_.empty()) begin();
    // Taken out first: where this throws, as in a capture that failed, their events are of no use to the next pass.
    auto pending = std::exchange(pending_, {});
    auto last = allowed_ ? last_ : std::exchange(last_, nullptr);
    if (last) last->block(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(stream_->device()));
    for (auto& piece : pending) give_back(piece);
  }

 private:
  // Pieces of work that may be behind the main stream: more hold more memory, fewer make it wait (docs/kernels.md).
  static constexpr size_t BEHIND = 12;

  struct Work {
    std::vector<Tensor> inputs;
    std::function<void()> work;
    c10::Stream from;  // where its inputs are made and given back
  };

  struct Piece {
    std::vector<Work> parts;
    std::shared_ptr<c10::Event> done;
  };

  // False where nothing may be put off: then it is done.
  template <class Do>
  bool put_off(std::vector<Tensor> inputs, Do& work) {
    if (!allowed_ || !inputs[0].is_cuda()) {
      work();
      return false;
    }
    auto from = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(inputs[0].device());
    later_.push_back({std::move(inputs), work, from});
    return true;
  }

  // All that waits becomes one piece.
  void begin() {
    c10::impl::VirtualGuardImpl device(c10::DeviceType::CUDA);
    auto parts = std::exchange(later_, {});
    if (!stream_) stream_ = device.getStreamFromGlobalPool(parts[0].from.device(), /*isHighPriority=*/false);
    while (pending_.size() >= BEHIND) {
      give_back(pending_.front());
      pending_.pop_front();
    }
    for (auto& stream : streams_of(parts)) {
      c10::Event ready(c10::DeviceType::CUDA);
      ready.record(stream);
      ready.block(*stream_);
    }
    auto before = device.exchangeStream(*stream_);
    try {
      for (auto& part : parts) part.work();
    } catch (...) {
      device.exchangeStream(before);
      throw;
    }
    device.exchangeStream(before);
    last_ = std::make_shared<c10::Event>(c10::DeviceType::CUDA);
    last_->record(*stream_);
    pending_.push_back({std::move(parts), last_});
  }

  // Each once.
  static std::vector<c10::Stream> streams_of(const std::vector<Work>& parts) {
    std::vector<c10::Stream> streams;
    for (auto& part : parts)
      if (std::find(streams.begin(), streams.end(), part.from) == streams.end()) streams.push_back(part.from);
    return streams;
  }

  // Its inputs' memory goes back to the streams that it came from, which therefore wait.
  static void give_back(Piece& piece) {
    for (auto& stream : streams_of(piece.parts)) piece.done->block(stream);
  }

  std::mutex lock_;
  bool allowed_ = false;
  std::optional<c10::Stream> stream_;
  std::vector<Work> later_;
  std::deque<Piece> pending_;
  std::shared_ptr<c10::Event> last_;  // behind everything on the lane, as long as gradients may be made there
};

}  // namespace fused
