package counters

import "strconv"

// Mode says what the denial of one layer means for its request.
type Mode uint8

const (
	// Enforce: it denies the request.
	Enforce Mode = iota
	// Soft is Enforce with a margin: a request that is over what its rule promises, but within the margin, is waived.
	Soft
	// Shadow: it denies nothing, it only tells what it would have denied.
	Shadow
	// Quota: it denies together with the others of its kind, when none of those that the request meets has room.
	Quota
	// Elastic is Enforce with a loan: a request that it has no room for passes where its lender has (elastic.go).
	Elastic
)

var modes = [...]string{Enforce: "enforce", Soft: "soft", Shadow: "shadow", Quota: "quota", Elastic: "elastic"}

// String returns the name that answers use.
func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// admit reports whether a request passes, given the decisions of its layers.
func admit(charges []Charge, decisions []Decision) bool {
	quotas, full := 0, 0
	for i := range charges {
		switch denied := !decisions[i].Allowed; charges[i].Mode {
		case Enforce, Soft, Elastic:
			if denied {
				return false
			}
		case Quota:
			if charges[i].Limit == nil {
				continue
			}
			quotas++
			if denied {
				full++
			}
		}
	}
	return quotas == 0 || full < quotas
}

// charged reports whether a layer that said d is charged by a request that passes, or does not.
func (ch *Charge) charged(d *Decision, passes bool) bool {
	if d.Waived {
		return (passes || ch.Overdraw) && ch.Mode != Elastic // a full lender is charged, a loan is not
	}
	return ch.Limit != nil && d.Allowed && (passes || ch.Each || ch.Overdraw)
}

// waive turns the denials that do not count into what they are: permissions that were near to be none.
func waive(charges []Charge, decisions []Decision) {
	full := true // all quotas, if there are any
	for i := range charges {
		if ch := &charges[i]; ch.Mode == Quota && ch.Limit != nil && decisions[i].Allowed {
			full = false
		}
	}
	for i := range charges {
		ch, d := &charges[i], &decisions[i]
		if ch.Limit == nil {
			continue
		}
		d.Mode = ch.Mode
		if ch.Mode == Shadow {
			d.Delay = 0
		}
		if !d.Allowed && (ch.Mode == Shadow || ch.Mode == Quota && !full) {
			d.Allowed, d.Waived, d.RetryAfter = true, true, 0
		}
	}
}
