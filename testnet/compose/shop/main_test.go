package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// buy asks a shop whose sidecar answers so.
func buy(t *testing.T, status int, answer string) *httptest.ResponseRecorder {
	t.Helper()
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer sidecar.Close()
	return buyAt(t, sidecar.URL)
}

func buyAt(t *testing.T, sidecar string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	newShop(sidecar, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/buy?client=alice", nil))
	return w
}

func TestBuy(t *testing.T) {
	if w := buy(t, 200, `{"allowed":true,"remaining":7}`); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "7 left") {
		t.Errorf("admitted: %d %s", w.Code, w.Body)
	}
	if w := buy(t, 200, `{"allowed":false,"retry_after_ms":1200}`); w.Code != 429 ||
		w.Header().Get("Retry-After") != "2" {
		t.Errorf("denied: %d, Retry-After %s", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestTheShopOutlivesItsSidecar(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for what, w := range map[string]*httptest.ResponseRecorder{"gone": buyAt(t, gone.URL), "refuses": buy(t, 500, ""),
		"rubbish": buy(t, 200, "rubbish")} {
		if w.Code != 200 || !strings.Contains(w.Body.String(), "sidecar is away") {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}
