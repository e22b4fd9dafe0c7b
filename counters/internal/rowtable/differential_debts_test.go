package rowtable_test

import (
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

// debts are the debts of both tables.
type debts struct {
	old *counters.Debts
	new *rowtable.Debts
	all []limits // see limits
}

// addDebts has both tables keep debts.
func (p *pair) addDebts() {
	p.debts = new(debts)
	var ids [rowtable.DebtClasses]uint64
	for i := range ids {
		ids[i] = p.Uint64()
	}
	old, err := counters.NewDebts(p.old, "%debts", func(limits []*counters.Limit) {
		p.known = append(p.known, limits...)
		p.old.Know(p.known)
	})
	if err != nil {
		p.Fatal(err)
	}
	p.debts.old, p.debts.new = old, rowtable.NewDebts(p.new, ids, p.new.Know)
}

// limits are those of the classes that were charged, and of their credits, for merges.
func (d *debts) limits() []limits {
	if d == nil {
		return nil
	}
	known := d.old.Limits()
	if len(d.all) == 2*len(known) {
		return d.all
	}
	d.all = nil
	for i, l := range known {
		m, now := l.Meter(), d.new.Limits()[i]
		credits, given := m, *now
		credits.Algorithm = counters.Credit
		given.Meter = *now.CreditMeter()
		d.all = append(d.all, limits{old: l, meter: &m, new: now}, limits{old: l, meter: &credits, new: &given})
	}
	return d.all
}

// owe charges a debt of both, or gives something back.
func (p *pair) owe() {
	if p.debts == nil {
		return
	}
	key := p.key()
	capacity := time.Duration(1 + p.Int64N(int64(time.Second)<<p.IntN(33)))
	if p.IntN(3) > 0 { // the same for many
		capacity = time.Second << (2 * p.IntN(6))
	}
	capacity = min(capacity, counters.MaxDebt)
	amount := time.Duration(p.Int64N(1 + int64(capacity)/int64(1+p.IntN(20))))
	switch p.IntN(8) {
	case 0:
		amount = 0
	case 1:
		amount = min(3*capacity, counters.MaxDebt)
	case 2:
		if p.IntN(2) == 0 {
			amount = counters.MaxDebt
		}
		want, ok := p.debts.old.GiveBack(counters.Key(key), amount, capacity, p.now)
		if got, gives := p.debts.new.GiveBack(key, amount, capacity, p.now); got != want || gives != ok {
			p.Fatalf("seed %d, step %d: %s of %s given back: %s, %v, want %s, %v", p.seed, p.n, amount, capacity, got,
				gives, want, ok)
		}
		return
	}
	want := p.decision(p.debts.old.Take(counters.Key(key), amount, capacity, p.now))
	if got := p.debts.new.Take(key, amount, capacity, p.now); got != want {
		p.Fatalf("seed %d, step %d: a charge of %s to %s at %d:\n%+v, want\n%+v", p.seed, p.n, amount, capacity, p.now,
			got, want)
	}
}
