package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLocal: pages on a person's own machine are for who knows the secret, at an address of this machine alone; the secret leaves the address at once, and there is nobody to sign in.
func TestLocal(t *testing.T) {
	t.Parallel()
	everybody := &rights{have: []string{"ada get podgroups.scheduling.run.ai", "ada list queues.scheduling.run.ai", "ada get podgroups.scheduling.volcano.sh"}}
	h := answerer(still{"": town(t)}, everybody).Local("s3cret").Handler()
	ask := func(host, path string, cookie *http.Cookie) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer ada")
		if cookie != nil {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const here = "127.0.0.1:1"
	for _, path := range []string{"/", "/queues", "/style.css", API + "/gangs", "/?secret=", "/?secret=wrong"} {
		if w := ask(here, path, nil); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "redbig") {
			t.Errorf("%s without the secret: %d", path, w.Code)
		}
	}
	w := ask(here, "/queues?resource=gpu&secret=s3cret", nil)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/queues?resource=gpu" || len(w.Result().Cookies()) != 1 {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("%+v", cookie)
	}
	if w := ask(here, "/", cookie); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "bluesecret") || strings.Contains(w.Body.String(), "sign out") {
		t.Errorf("with the cookie: %d %s", w.Code, w.Body)
	}
	if w := ask("evil.example", "/", cookie); w.Code != http.StatusForbidden {
		t.Errorf("under another name: %d", w.Code)
	}
	if w := ask("evil.example", "/?secret=s3cret", nil); w.Code != http.StatusForbidden {
		t.Errorf("under another name, with the secret: %d", w.Code)
	}
}
