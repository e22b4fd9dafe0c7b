package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/cmd/edgelimit/app"
)

func TestShop(t *testing.T) {
	for _, test := range []struct {
		method, target, body string
		status               int
	}{
		{"GET", "/readyz", "", 200}, {"GET", "/buy?client=alice", "", 200}, {"GET", "/login", "", 405},
		{"POST", "/login?user=alice", "password=right", 200}, {"POST", "/login?user=alice", "password=wrong", 401},
		{"POST", "/login?user=alice&password=right", "", 401},
	} {
		r, w := httptest.NewRequest(test.method, test.target, strings.NewReader(test.body)), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		newShop().ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s %s %s: status %d, want %d", test.method, test.target, test.body, w.Code, test.status)
		}
	}
}

// The containers' commands are those of edgelimit, and the shop.
func TestCommands(t *testing.T) {
	for _, name := range []string{"serve", "proxy", "health", "keygen", "shop"} {
		if newApp().Command(name) == nil {
			t.Errorf("there is no command %s", name)
		}
	}
	if app.New().Command("shop") != nil {
		t.Error("the product has a shop")
	}
}
