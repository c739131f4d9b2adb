package ui

import (
	"crypto/subtle"
	"net/http"

	"github.com/muster-scheduler/muster/internal/app"
)

// secretCookie keeps the secret of a local page, so that it stands in the address of the first one alone.
const secretCookie = "muster-secret"

// Local has the Answerer be one of a person's own machine: it answers requests to this machine alone that bring the secret, in the address or in the cookie that this gets them,
// and nobody signs in.
func (a *Answerer) Local(secret string) *Answerer {
	a.local, a.secret = true, secret
	return a
}

// guarded lets those in who know the secret.
func (a *Answerer) guarded(h http.Handler) http.Handler {
	knows := func(s string) bool { return subtle.ConstantTimeCompare([]byte(s), []byte(a.secret)) == 1 }
	return app.Local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if said := query.Get("secret"); said != "" && knows(said) {
			http.SetCookie(w, &http.Cookie{Name: secretCookie, Value: said, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			query.Del("secret")
			to := *r.URL
			to.Scheme, to.Host, to.RawQuery = "", "", query.Encode()
			http.Redirect(w, r, within(to.String()), http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(secretCookie); err != nil || !knows(c.Value) {
			http.Error(w, "open the address that the command has printed: it has a secret in it", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// Knows has a request to a Local one show that it knows the secret.
func Knows(r *http.Request, secret string) {
	r.AddCookie(&http.Cookie{Name: secretCookie, Value: secret})
}
