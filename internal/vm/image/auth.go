package image

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Auth are a registry's credentials, as CRI's AuthConfig has them. One of the ways is used, the first that is given of RegistryToken,
// IdentityToken, Username with Password, Auth.
type Auth struct {
	Username, Password string
	// Auth is "USERNAME:PASSWORD" in base64.
	Auth string
	// ServerAddress, if not empty, is the only host that gets them: a host or a URL.
	ServerAddress string
	// IdentityToken is exchanged for a token at the registry's token server.
	IdentityToken string
	// RegistryToken is sent to the registry as it is.
	RegistryToken string
}

// forEndpoint is what of the credentials an endpoint gets. A mirror gets those that are for it by name.
func (a *Auth) forEndpoint(e endpoint, mirror bool) Auth {
	if a == nil {
		return Auth{}
	}
	server := a.ServerAddress
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server = rest
	}
	server, _, _ = strings.Cut(server, "/")
	if mirror && server == "" || server != "" && !strings.EqualFold(server, e.host) && !(isDocker(server) && isDocker(e.host)) {
		return Auth{}
	}
	return *a
}

// basic is the value of an Authorization header, or empty.
func (a Auth) basic() string {
	switch {
	case a.Username != "" || a.Password != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
	case a.Auth != "":
		return "Basic " + strings.TrimSpace(a.Auth)
	}
	return ""
}

// authorizer answers a registry's challenges: Basic (RFC 7617), and Bearer with a token server
// (https://distribution.github.io/distribution/spec/auth/token/ and …/oauth/). It sends what it has to the registry alone.
type authorizer struct {
	caller *caller
	auth   Auth
	scope  string

	mu     sync.Mutex
	header string // of Authorization, once it is known
}

const maxTokenBytes = 64 << 10

func (a *authorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	if !a.caller.isOrigin(r.URL) {
		return a.caller.RoundTrip(r)
	}
	a.mu.Lock()
	given := a.header
	a.mu.Unlock()
	response, err := a.caller.RoundTrip(withAuthorization(r, given))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	header, err := a.answer(r.Context(), response.Header.Values("WWW-Authenticate"))
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	if header == "" || header == given {
		return response, nil // there is nothing more to show
	}
	response.Body.Close()
	a.mu.Lock()
	a.header = header
	a.mu.Unlock()
	return a.caller.RoundTrip(withAuthorization(r, header))
}

func withAuthorization(r *http.Request, header string) *http.Request {
	if header == "" {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", header)
	return r
}

// answer gives the Authorization that challenges ask for, or nothing.
func (a *authorizer) answer(ctx context.Context, challenges []string) (string, error) {
	if a.auth.RegistryToken != "" {
		return "Bearer " + a.auth.RegistryToken, nil
	}
	for _, c := range challenges {
		scheme, parameters := parseChallenge(c)
		switch {
		case strings.EqualFold(scheme, "bearer"):
			token, err := a.token(ctx, parameters)
			if err != nil {
				return "", err
			}
			return "Bearer " + token, nil
		case strings.EqualFold(scheme, "basic"):
			return a.auth.basic(), nil
		}
	}
	return "", nil
}

// token asks the token server that a registry names.
func (a *authorizer) token(ctx context.Context, challenge map[string]string) (string, error) {
	bad := func(kind vm.Kind, format string, args ...any) (string, error) {
		return "", vm.Errorf(kind, "the registry's token server: %w", fmt.Errorf(format, args...))
	}
	realm, err := url.Parse(challenge["realm"])
	if err != nil || realm.Host == "" || realm.User != nil || realm.Scheme != schemeHTTPS && (realm.Scheme != schemeHTTP || !a.caller.plain) {
		return bad(vm.Invalid, "%s: must be a URL of scheme https, or http for a registry without TLS", quote(challenge["realm"]))
	}
	c, err := newCaller(realm, Transport{})
	if err != nil {
		return "", err
	}
	defer c.close()
	c.loopback = a.caller.local()
	c.redirects = 0 // the credentials are for this one
	scope := challenge["scope"]
	if scope == "" {
		scope = a.scope
	}
	values := url.Values{"scope": {scope}}
	if service := challenge["service"]; service != "" {
		values.Set("service", service)
	}
	var r *http.Request
	if a.auth.IdentityToken != "" {
		values.Set("grant_type", "refresh_token")
		values.Set("client_id", "muster-vm")
		values.Set("refresh_token", a.auth.IdentityToken)
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(values.Encode()))
	} else {
		maps.Copy(values, realm.Query())
		realm.RawQuery = values.Encode()
		r, err = http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	}
	if err != nil {
		return bad(vm.Invalid, "%w", withoutURL(err))
	}
	if a.auth.IdentityToken != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else if basic := a.auth.basic(); basic != "" {
		r.Header.Set("Authorization", basic)
	}
	response, err := c.client(c, headerTimeout).Do(r)
	if err != nil {
		return "", transient(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", badStatus(response)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxTokenBytes))
	if err != nil {
		return "", transient(ctx, err)
	}
	var got struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(data, &got) != nil || got.Token == "" && got.AccessToken == "" {
		return bad(vm.Unavailable, "%s sent no token", quote(realm.Host))
	}
	if got.Token == "" {
		return got.AccessToken, nil
	}
	return got.Token, nil
}

// parseChallenge takes a WWW-Authenticate header apart: a scheme, and parameters whose values may be quoted. What it cannot read ends it.
func parseChallenge(s string) (scheme string, parameters map[string]string) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	parameters = map[string]string{}
	for {
		rest = strings.TrimLeft(rest, " \t,")
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return scheme, parameters
		}
		after = strings.TrimLeft(after, " \t")
		var value string
		if quoted, is := strings.CutPrefix(after, `"`); is {
			end := 0
			for ; end < len(quoted) && quoted[end] != '"'; end++ {
				if quoted[end] == '\\' && end+1 < len(quoted) {
					end++
				}
				value += quoted[end : end+1]
			}
			rest = quoted[min(end+1, len(quoted)):]
		} else {
			value, rest, _ = strings.Cut(after, ",")
			value = strings.TrimSpace(value)
		}
		parameters[strings.ToLower(strings.TrimSpace(key))] = value
	}
}
