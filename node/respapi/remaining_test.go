package respapi

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRemainingIsAdmitted: whatever the numbers and the debt, what a reply calls remaining is admitted at once, and a
// token more is not.
func TestRemainingIsAdmitted(t *testing.T) {
	numbers := map[string]func(r *rand.Rand) string{
		"CL.THROTTLE k %s": func(r *rand.Rand) string {
			return fmt.Sprint(r.IntN(10_000), 1+r.IntN(10_000), []int{1, 1, 60, 3600, 1 + r.IntN(100_000)}[r.IntN(5)])
		},
		"THROTTLE k %s": func(r *rand.Rand) string {
			return fmt.Sprint(1+r.IntN(10_000), 1+r.IntN(10_000), []int{1, 60, 3600}[r.IntN(3)])
		},
		"EVALSHA " + allowN + " 1 k %s": func(r *rand.Rand) string {
			return fmt.Sprint(1+r.IntN(10_000), 1+r.IntN(10_000), []float64{1, 60, 0.5, 86400, 1e5}[r.IntN(5)])
		},
	}
	opt := quiet()
	opt.RedisRate = true
	b := newBank()
	s := New(b, opt)
	for command, next := range numbers {
		random := rand.New(rand.NewPCG(54, 1))
		for i := range 2_000 {
			words := fmt.Sprintf(command, next(random))
			if i == 0 && command[0] == 'C' {
				words = fmt.Sprintf(command, "6000 6000 1")
			}
			converse(s, "DEL k\n")
			ask := func(quantity int64) (admitted bool, remaining int64) {
				reply := replies(t, converse(s, array(append(strings.Fields(words), fmt.Sprint(quantity))...)))[0]
				fields := strings.Fields(strings.Trim(reply, "[]"))
				if len(fields) < 4 {
					t.Fatalf("%s %d: %s", words, quantity, reply)
				}
				at := 2
				if command[0] == 'E' {
					admitted, at = fields[0] != "0", 1
				} else if admitted = fields[0] == "0"; command[0] == 'T' {
					admitted = !admitted
				}
				remaining, err := strconv.ParseInt(fields[at], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return admitted, remaining
			}
			for range 1 + random.IntN(3) {
				if admitted, left := ask(1 + random.Int64N(1+random.Int64N(5_000))); admitted || command[0] != 'E' {
					if more, _ := ask(left + 1); more {
						t.Fatalf("%s: %d remain, and %d are admitted", words, left, left+1)
					}
					if left > 0 && random.IntN(2) == 0 {
						if all, _ := ask(left); !all {
							t.Fatalf("%s: %d remain, and are denied", words, left)
						}
					}
				}
				most := []time.Duration{time.Millisecond, time.Second, time.Hour}[random.IntN(3)]
				b.now.Add(random.Int64N(int64(most)))
			}
		}
	}
}
