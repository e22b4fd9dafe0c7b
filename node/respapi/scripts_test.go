package respapi

import "testing"

// Without its switch no script is answered, and the error names the switch.
func TestScriptsAreRefused(t *testing.T) {
	refusal := "-ERR scripts are refused: the setting resp_redis_rate (--resp-redis-rate) has those of the library " +
		"redis_rate answered"
	hold(t, New(newBank(), quiet()), []dialogue{
		{"EVALSHA " + allowN + " 1 k 10 10 1 1", refusal},
		{"EVAL x 0", refusal},
		{"SCRIPT LOAD x", refusal},
		{"SCRIPT EXISTS x", refusal},
	})
}

func TestScripts(t *testing.T) {
	opt := quiet()
	opt.RedisRate = true
	const n, most = "EVALSHA " + allowN, "EVALSHA " + allowAtMost
	const empty = `[0 0 "0.1" "1"]`
	b := newBank()
	hold(t, New(b, opt), []dialogue{
		{n + " 1 k 10 10 1 1", `[1 9 "-1" "0.1"]`},
		{n + " 1 k 10 10 1 10", `[0 0 "0.1" "0.1"]`},
		{n + " 1 k 10 10 1 0", `[0 9 "-1" "0.1"]`},
		{n + " 1 k 10 10 1 20", `[0 0 "1.1" "0.1"]`},
		{n + " 1 k 10 10 1 -5", `[-5 10 "-1" "-0.4"]`}, // more than it owes: the script sets nothing
		{n + " 1 k 10 10 1 4", `[4 5 "-1" "0.5"]`},
		{n + " 1 k 10 10 1 -2", `[-2 7 "-1" "0.3"]`},
		{most + " 1 k 10 10 1 20", `[7 0 "-1" "1"]`},
		{most + " 1 k 10 10 1 1", empty},
		{most + " 1 k 10 10 1 0", empty},
		{n + " 1 k 10 10 1 1", empty},
		{"TTL k\nDEL k", "1\n1"},
		{n + " 1 half 1 2 0.5 1", `[1 0 "-1" "0.25"]`},
		{n + " 1 none 0 1 1 1", `[0 0 "1" "0"]`},
		{"EVALSHA 0123 1 k 10 10 1 1", "-NOSCRIPT No matching script. Please use EVAL."},
		{`EVAL "return 1" 0`, "-ERR only the scripts of the library redis_rate are answered"},
		{`SCRIPT LOAD "return 1"`, "-ERR only the scripts of the library redis_rate are answered"},
		{"SCRIPT EXISTS " + allowN + " x", "[1 0]"},
		{"SCRIPT FLUSH", "-ERR unknown subcommand 'FLUSH'. Try SCRIPT HELP."},
		{n + " x", "-ERR value is not an integer or out of range"},
		{n + " -1 k", "-ERR Number of keys can't be negative"},
		{n + " 2 k", "-ERR Number of keys can't be greater than number of args"},
		{n + " 2 k 10 10 1 1", "-" + badScript},
		{n + " 1 k 10 10 1", "-" + badScript},
		{n + " 1 k 10 10 1 1 1", "-" + badScript},
	})
	for _, numbers := range []string{
		"x 10 1 1", "10 0 1 1", "10 -1 1 1", "-1 1 1 1", "10 10 0 1", "10 10 -1 1", "inf 1 1 1", "10 inf 1 1",
		"10 10 inf 1", "10 10 1 inf", "nan 1 1 1", "10 nan 1 1", "10 10 nan 1", "10 10 1 nan", "1e300 1 1 1",
		"10 1e300 1 1", "10 1e-300 1 1", "10 10 1e300 1", "10 10 1 1e300", "10 10 1 -1e300",
	} {
		for _, script := range []string{n, most} {
			hold(t, New(b, opt), []dialogue{{script + " 1 bad " + numbers, "-" + badScript}})
		}
	}
	hold(t, New(b, opt), []dialogue{{"EXISTS bad", "0"}})
}
