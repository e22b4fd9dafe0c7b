package node

import (
	"time"

	"github.com/edgelimit/edgelimit/node/rules"
)

// The keys of Redis' clients are debts: a key has one, whatever limits it is asked under. All nodes share them.

// debtName begins the names of their meters. No rule can have it: in rules, a percent sign comes before two digits.
const debtName = "%cl.throttle"

// TakeDebt charges an identity if it then owes no more than the capacity, see [counters.Debts.Take]. The node does not
// keep the identity.
func (n *Node) TakeDebt(identity []byte, charge, capacity time.Duration) Decision {
	return n.library.TakeDebt(identity, charge, capacity)
}

// GiveBack takes an amount off what an identity owes, see [counters.Debts.GiveBack].
func (n *Node) GiveBack(identity []byte, amount, capacity time.Duration) (owed time.Duration, ok bool) {
	return n.debts.GiveBack(rules.KeyOf(n.secret, identity), amount, capacity, n.clock.Now())
}
