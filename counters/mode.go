package counters

import "strconv"

// Mode is what the denial of one layer means for its request.
type Mode uint8

const (
	// Enforce: the denial denies the request.
	Enforce Mode = iota
	// Soft is Enforce for a limit with a margin: a request over the rule's limit but within the margin is waived.
	Soft
	// Shadow: the denial is only recorded.
	Shadow
	// Quota: the request is denied if all of its quotas deny.
	Quota
	// Elastic is Enforce with a loan: a request over the limit passes if the layer's lender has room (elastic.go).
	Elastic
	// Throttle is Soft for a queue that delays only what needs the margin.
	Throttle
)

var modes = [...]string{Enforce: "enforce", Soft: "soft", Shadow: "shadow", Quota: "quota", Elastic: "elastic",
	Throttle: "throttle"}

// String returns the name that answers use.
func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// denies reports whether a layer's denial denies the request by itself.
func (m Mode) denies() bool { return m != Shadow && m != Quota }

// mayWaive reports whether a layer's denial may let the request pass.
func (m Mode) mayWaive() bool { return m == Shadow || m == Quota || m == Elastic }

// admit reports whether a request passes, given the decisions of its layers.
func admit(charges []Charge, decisions []Decision) bool {
	for i := range charges {
		if !decisions[i].Allowed && charges[i].Mode.denies() {
			return false
		}
	}
	return !quotasFull(charges, decisions)
}

// quotasFull reports whether the request has quotas and all of them deny.
func quotasFull(charges []Charge, decisions []Decision) (full bool) {
	for i := range charges {
		if charges[i].Mode == Quota && charges[i].Limit != nil {
			if decisions[i].Allowed {
				return false
			}
			full = true
		}
	}
	return full
}

// applyModes sets the mode of each decision, and waives the denials that do not count.
func applyModes(charges []Charge, decisions []Decision) {
	full := quotasFull(charges, decisions)
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
			d.waive()
		}
	}
}

func (d *Decision) waive() { d.Allowed, d.Waived, d.RetryAfter = true, true, 0 }
