package oracle

import (
	"math"
	"math/bits"
)

// wide is a whole number of 128 bits; sums that do not fit end at the largest.
type wide struct{ hi, lo uint64 }

func product(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

func (a wide) less(b wide) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func larger(a, b wide) wide {
	if a.less(b) {
		return b
	}
	return a
}

func (a wide) plus(b wide) wide {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, carry := bits.Add64(a.hi, b.hi, carry)
	if carry != 0 {
		return wide{math.MaxUint64, math.MaxUint64}
	}
	return wide{hi, lo}
}

// minus is a - b, which must not be below 0.
func (a wide) minus(b wide) wide {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return wide{hi, lo}
}

// over is ceil(a / d), or the largest number of 64 bits.
func (a wide) over(d uint64) uint64 {
	if a.hi >= d {
		return math.MaxUint64
	}
	q, r := bits.Div64(a.hi, a.lo, d)
	if r > 0 {
		q = add(q, 1)
	}
	return q
}
