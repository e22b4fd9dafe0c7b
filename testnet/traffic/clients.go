package traffic

import (
	"math/rand/v2"
	"time"

	"github.com/edgelimit/edgelimit/node/replay"
)

// CompliantShare is the part of the limit that Compliant asks for in its fullest window: less than 95 %, so that the
// client stays compliant where requests come late.
const CompliantShare = 0.9

// Compliant generates the requests of a client that keeps to its limit. Over and over it asks for CompliantShare of the
// limit within a window: half of that evenly, of each node in turn, and half in a burst of a fiftieth of the window, of
// one node, another one each round. The requests of a round come at the same moments of it, and a round is longer than
// any sub-window keeps what is in it: so no view holds more than one round.
func Compliant(client string, limit uint64, window time.Duration, nodes int) Source {
	round, share := window*12/10, int(CompliantShare*float64(limit))
	bursting := share / 2
	evenly := share - bursting
	step := window / time.Duration(max(1, evenly))
	burst, burstStep := window/2, window/50/time.Duration(max(1, bursting))
	n, i, j := 0, 0, 0 // the next is the i-th even one, or the j-th of the burst, of the n-th round
	return func() (Arrival, bool) {
		if share == 0 {
			return Arrival{}, false
		}
		if i == evenly && j == bursting {
			n, i, j = n+1, 0, 0
		}
		began, even := time.Duration(n)*round, step/2+time.Duration(i)*step
		if at := burst + time.Duration(j)*burstStep; j < bursting && (i == evenly || at < even) {
			j++
			return Arrival{began + at, client, n % nodes}, true
		}
		i++
		return Arrival{began + even, client, (n + i - 1) % nodes}, true
	}
}

// Replay gives the requests of a log in the order of time, sped up to last the duration, at random nodes. Each address
// is a client. Requests of one second are spread over it.
func Replay(log []replay.Entry, duration time.Duration, nodes int, r *rand.Rand) Source {
	span := LogSpan(log)
	i, from, to := 0, 0, 0 // log[from:to] are the requests of one second
	return func() (Arrival, bool) {
		if i == len(log) {
			return Arrival{}, false
		}
		if i == to {
			for from = i; to < len(log) && log[to].Time.Equal(log[i].Time); {
				to++
			}
		}
		within := time.Second * time.Duration(i-from) / time.Duration(to-from)
		at := float64(log[i].Time.Sub(log[0].Time)+within) / float64(span) * float64(duration)
		a := Arrival{time.Duration(at), log[i].Addr, r.IntN(nodes)}
		i++
		return a, true
	}
}

// LogSpan returns how long a log in the order of time lasts. Each request belongs to the whole second that its time
// names.
func LogSpan(log []replay.Entry) time.Duration {
	return log[len(log)-1].Time.Sub(log[0].Time) + time.Second
}
