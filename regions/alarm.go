package regions

import (
	"errors"
	"log/slog"
)

// alarm is a condition that is logged when it begins, not for as long as it lasts.
type alarm bool

// begins sets the condition and says whether it was off before.
func (a *alarm) begins(on bool) bool {
	was := bool(*a)
	*a = alarm(on)
	return on && !was
}

// logFlush notes how a flush went, and logs what changed with it.
func (r *Reconciler) logFlush(err error) {
	full := errors.Is(err, ErrFull)
	if r.away.begins(err != nil && !full) {
		r.cfg.Log.Warn("the region's Redis does not answer: decisions go on without it", slog.Any("error", err))
	}
	if r.noRoom.begins(full) {
		r.cfg.Log.Warn("the region's Redis has no room for new counts: decisions go on without it",
			slog.Any("error", err))
	}
	switch {
	case err != nil:
		r.failures++
	case r.failures > 0:
		r.cfg.Log.Info("the region's Redis works again", slog.Int("failed_flushes", r.failures))
		r.failures = 0
	}
	stats := r.Stats()
	if r.relapsing.begins(r.held || bool(r.relapsing) && r.losses.count(r.cfg.Elapsed()) > 0) {
		r.cfg.Log.Warn("the region's Redis loses data again and again: sending it everything less often from now on; "+
			"is its maxmemory-policy noeviction, and is it this region's alone?", slog.Duration("every", lossEvery))
	}
	if r.losing.begins(stats.Lost > r.lost) && !bool(r.relapsing) {
		r.cfg.Log.Warn("the region's Redis lost data, or was restarted or replaced: writing again all counts "+
			"that this node holds", slog.Uint64("losses", stats.Lost))
	}
	if r.full.begins(stats.Dropped > r.dropped) {
		r.cfg.Log.Warn("too many slots wait for the region's Redis: all own slots will be written when it takes them",
			slog.Int("pending", stats.Pending), slog.Int("cap", r.cfg.MaxPending))
	}
	r.lost, r.dropped = stats.Lost, stats.Dropped
}
