package testkit

import (
	"io"
	"net/http"
	"strings"
)

// Fetch sends a request and returns the status of its answer, its Content-Type and its body.
func Fetch(web *http.Client, method, url, body string) (status int, kind, answer string, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	resp, err := web.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text), err
}
