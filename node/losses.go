package node

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// lossesLast is for how long a lost line of a log is a finding.
const lossesLast = 5 * time.Minute

// losses remembers when logs last lost lines. It is safe for concurrent use.
type losses struct {
	mu sync.Mutex
	of map[string]lostLines
}

// lostLines is how often a log could not be written since the start, and when that was last noticed.
type lostLines struct {
	what     string
	failures uint64
	last     time.Time
}

// recent takes how many writes have failed, by log, and returns the logs that lost lines within lossesLast.
func (l *losses) recent(failures map[string]uint64, now time.Time) []lostLines {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string]lostLines)
	}
	var all []lostLines
	for what, count := range failures {
		lost := l.of[what]
		if count > lost.failures {
			lost = lostLines{what, count, now}
			l.of[what] = lost
		}
		if lost.failures > 0 && now.Sub(lost.last) < lossesLast {
			all = append(all, lost)
		}
	}
	slices.SortFunc(all, func(a, b lostLines) int { return cmp.Compare(a.what, b.what) })
	return all
}

// lostWrites returns how many writes to each log have failed.
func (n *Node) lostWrites() map[string]uint64 {
	failures := make(map[string]uint64)
	if n.decisions != nil {
		failures["decision"] = n.decisions.Stats().Failures
	}
	if n.proxy != nil {
		failures["access"] = n.proxy.Stats().LogErrors
	}
	return failures
}
