package respapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/limits"
)

func TestTransactions(t *testing.T) {
	const q = "+OK\n+QUEUED\n"
	hold(t, New(newBank(), quiet()), []dialogue{
		{"MULTI\nEXEC", "+OK\n[]"},
		{"MULTI\ncl.throttle k 0 1 10\ncl.throttle k 0 1 10\nPTTL k\nEXEC\nPING", q +
			"+QUEUED\n+QUEUED\n[[0 1 0 -1 10] [1 1 0 10 10] 10000]\n+PONG"},
		{"MULTI\nDEL k\nDISCARD\nEXISTS k", q + "+OK\n1"},
		{"MULTI\nDEL k", strings.TrimSpace(q)}, // and the connection ends
		{"EXISTS k", "1"},
		{"EXEC", "-ERR EXEC without MULTI"},
		{"DISCARD", "-ERR DISCARD without MULTI"},
		{"MULTI\nMULTI\nDEL k\nEXEC", "+OK\n-ERR MULTI calls can not be nested\n+QUEUED\n[1]"},
		{"cl.throttle k 0 1 10\nMULTI\nDEL k\nGET k\nDEL k\nEXEC\nEXISTS k", "[0 1 0 -1 10]\n" + q +
			"-ERR unknown command 'GET', with args beginning with: 'k' \n+QUEUED\n" +
			"-EXECABORT Transaction discarded because of previous errors.\n1"},
		{"MULTI\nTTL\nEXEC", "+OK\n-ERR wrong number of arguments for 'ttl' command\n" +
			"-EXECABORT Transaction discarded because of previous errors."},
		{"MULTI\ncl.throttle k\nPING\nEXEC", q + "+QUEUED\n[-" + usage + " +PONG]"}, // errors of a run end nothing
		{"MULTI\nSELECT 3\nEXISTS k\nEXEC\nEXISTS k", q + "+QUEUED\n[+OK 0]\n0"},
		{"MULTI\nDEL k\nRESET\nEXEC", q + "+RESET\n-ERR EXEC without MULTI"},
		{"MULTI\nDEL k\nQUIT\nEXEC", q + "+OK"},
		{"MULTI\nDEL k\nMULTI x\nEXEC", q + "-ERR wrong number of arguments for 'multi' command\n" +
			"-EXECABORT Transaction discarded because of previous errors."},
	})
}

func TestTransactionsNeedThePassword(t *testing.T) {
	opt := quiet()
	opt.Password = "secret"
	hold(t, New(newBank(), opt), []dialogue{
		{"MULTI\nEXEC\nDISCARD", strings.TrimSuffix(strings.Repeat("-NOAUTH Authentication required.\n", 3), "\n")},
		{"AUTH secret\nMULTI\nRESET\nEXEC", "+OK\n+OK\n+RESET\n-NOAUTH Authentication required."},
	})
}

// Nobody's queue grows without end, in number or in bytes, nor do all together, and a connection leaves nothing behind.
func TestQueuesAreBounded(t *testing.T) {
	s := New(newBank(), quiet())
	tooLong := fmt.Sprintf("-ERR the transaction is too long: at most %d commands and %d bytes are queued", maxQueued,
		maxQueueBytes)
	for name, one := range map[string]string{
		"commands": array("PING"), "bytes": array("ECHO", strings.Repeat("x", 10_000)),
		"arguments": array(append([]string{"DEL"}, make([]string, 500)...)...),
	} {
		got := replies(t, converse(s, "MULTI\n", strings.Repeat(one, 2*maxQueued), "EXEC\nPING\n"))
		queued := 0
		for queued+1 < len(got) && got[queued+1] == "+QUEUED" {
			queued++
		}
		if queued == 0 || queued > maxQueued || got[queued+1] != tooLong ||
			!strings.HasPrefix(got[len(got)-2], "-EXECABORT") || got[len(got)-1] != "+PONG" {
			t.Errorf("%s: after %d: %q ... %q", name, queued, got[queued+1], got[len(got)-2:])
		}
	}
	if left := s.long.Stats().Used; left != 0 {
		t.Errorf("%d bytes are left", left)
	}
	s.long = limits.NewBudget("resp", "commands", 1000, nil)
	got := replies(t, converse(s, "MULTI\n"+array("ECHO", strings.Repeat("x", 2000))+"EXEC\n"))
	if got[1] != tooLong || s.long.Stats().Used != 0 {
		t.Errorf("beyond what all share: %q, %d bytes are left", got, s.long.Stats().Used)
	}
	r := serve(t, newBank(), quiet())
	c := r.dial(t)
	c.send("MULTI\nPING\n")
	c.expect("+OK", "+QUEUED")
	if r.long.Stats().Used == 0 {
		t.Error("a queue counts for nothing")
	}
	_ = c.Close()
	_ = r.Close()
	if left := r.long.Stats().Used; left != 0 {
		t.Errorf("%d bytes are left after the connection", left)
	}
}
