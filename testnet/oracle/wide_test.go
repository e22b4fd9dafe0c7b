package oracle

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func (a wide) big() *big.Int {
	n := new(big.Int).SetUint64(a.hi)
	return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(a.lo))
}

// Wide numbers are numbers.
func TestWide(t *testing.T) {
	largest := wide{math.MaxUint64, math.MaxUint64}
	word := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3), rapid.Uint64Range(math.MaxUint64-3, math.MaxUint64))
	rapid.Check(t, func(t *rapid.T) {
		a, b := product(word.Draw(t, "a"), word.Draw(t, "b")), product(word.Draw(t, "c"), word.Draw(t, "d"))
		a.hi, a.lo = a.hi|word.Draw(t, "high"), a.lo|word.Draw(t, "low")
		sum := new(big.Int).Add(a.big(), b.big())
		if sum.Cmp(largest.big()) > 0 {
			sum = largest.big()
		}
		if a.plus(b).big().Cmp(sum) != 0 {
			t.Errorf("%v + %v = %v", a.big(), b.big(), a.plus(b).big())
		}
		if a.less(b) != (a.big().Cmp(b.big()) < 0) || larger(a, b) != larger(b, a) || larger(a, b).less(a) {
			t.Errorf("%v and %v are in the wrong order", a.big(), b.big())
		}
		if !a.less(b) && a.minus(b).big().Cmp(new(big.Int).Sub(a.big(), b.big())) != 0 {
			t.Errorf("%v - %v = %v", a.big(), b.big(), a.minus(b).big())
		}
		d := max(1, word.Draw(t, "divisor"))
		want := new(big.Int).SetUint64(d)
		want.Div(new(big.Int).Add(a.big(), new(big.Int).SetUint64(d-1)), want)
		if !want.IsUint64() {
			want.SetUint64(math.MaxUint64)
		}
		if want.Cmp(new(big.Int).SetUint64(a.over(d))) != 0 {
			t.Errorf("ceil(%v / %d) = %d, want %v", a.big(), d, a.over(d), want)
		}
	})
}

func TestProduct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		want := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		if product(a, b).big().Cmp(want) != 0 {
			t.Errorf("%d * %d = %v", a, b, product(a, b).big())
		}
	})
}
