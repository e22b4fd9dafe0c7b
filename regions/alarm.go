package regions

import "log/slog"

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
	switch {
	case err != nil:
		if r.failures++; r.failures == 1 {
			r.cfg.Log.Warn("the regional store fails: deciding without it", slog.Any("error", err))
		}
	case r.failures > 0:
		r.cfg.Log.Info("the regional store is back", slog.Int("failed_flushes", r.failures))
		r.failures = 0
	}
	stats := r.Stats()
	if r.relapsing.begins(r.held || bool(r.relapsing) && r.losses.count(r.cfg.Elapsed()) > 0) {
		r.cfg.Log.Warn("the regional store loses data again and again: sending it everything less often from now on; "+
			"is its maxmemory-policy noeviction, and is it this region's alone?", slog.Duration("every", lossEvery))
	}
	if r.losing.begins(stats.Lost > r.lost) && !bool(r.relapsing) {
		r.cfg.Log.Warn("the regional store lost data or was restarted: sending it all own slots again")
	}
	if r.full.begins(stats.Dropped > r.dropped) {
		r.cfg.Log.Warn("too many slots wait for the regional store: all own slots will be written when it takes them",
			slog.Int("pending", stats.Pending), slog.Int("cap", r.cfg.MaxPending))
	}
	r.lost, r.dropped = stats.Lost, stats.Dropped
}
