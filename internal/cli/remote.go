package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

// EnvUI names the environment variable with the address of the role ui.
const EnvUI = "MUSTER_UI"

const (
	// roleWithin is how long the role may take for an answer, and maxAnswer how large it may be.
	roleWithin = 70 * time.Second
	maxAnswer  = 16 << 20
)

// remote is the role ui, which answers from the scheduler's own cycles.
type remote struct{ url, ca, print string }

func (r *remote) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.url, "ui", os.Getenv(EnvUI), "address of the role ui, such as https://muster-ui.example, which answers from the scheduler's own cycles; empty: $"+EnvUI+", and without it the command looks at the cluster itself")
	c.Flags().StringVar(&r.ca, "ui-certificate-authority", "", "file with the certificates that the role's is to be signed by; empty: those that this machine trusts")
	c.Flags().StringVar(&r.print, "ui-certificate-fingerprint", "", "SHA-256 of the role's certificate, which its log says: that one is believed, whoever has signed it")
	c.Flags().Lookup("ui").DefValue = "" // not what this machine's environment says
}

// explain asks the role; with more in the question. Nil where it gives no answer, and why is said then: the command looks itself.
func (r *remote) explain(c *cobra.Command, o app.ClientOptions, namespace, name string, more string) *see.Explanation {
	if r.url == "" {
		return nil
	}
	e := &see.Explanation{}
	err := r.ask(c.Context(), o, "/namespaces/"+url.PathEscape(namespace)+"/gangs/"+url.PathEscape(name)+"?inLine=true"+more, e)
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%v\nlooking at the cluster itself, which is not the scheduler's view:\n", err)
		return nil
	}
	return e
}

// gangs asks the role for the gangs of a namespace, "" for all; false where it gives no answer, and why is said then: the command looks itself. A shard of which the role knows nothing is told of.
func (r *remote) gangs(c *cobra.Command, o app.ClientOptions, namespace string) ([]GangReport, bool) {
	path := "/gangs"
	if namespace != "" {
		path += "?namespace=" + url.QueryEscape(namespace)
	}
	var lists struct {
		Items []struct {
			see.GangList
			Object, Message string // of a refusal
		}
	}
	if err := r.ask(c.Context(), o, path, &lists); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%v\nlooking at the cluster itself, which is not the scheduler's view:\n", err)
		return nil, false
	}
	out := []GangReport{}
	for i := range lists.Items {
		l := &lists.Items[i]
		if l.Kind != "GangList" {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", l.Object, l.Message)
			continue
		}
		if l.Cycle.Note != "" {
			fmt.Fprintln(c.ErrOrStderr(), l.Cycle.Note)
		}
		for _, g := range l.GangList.Items {
			why := g.Message
			if g.Unasked {
				why = "waits; there was no time to find out why"
			}
			out = append(out, GangReport{
				Namespace: g.Namespace, Name: g.Gang, Queue: g.Queue, Priority: g.Priority, Phase: g.Phase, Pods: g.Pods, AgeSeconds: g.AgeSeconds, Reason: g.Reason, Message: g.Message,
				Next: g.Word == explain.Starting, Word: g.Word, Start: g.Start, rule: why,
			})
		}
	}
	return out, true
}

// ask gets what is at a path of the role's API, as the kubeconfig's user.
func (r *remote) ask(ctx context.Context, o app.ClientOptions, path string, into any) error {
	text, code, err := r.fetch(ctx, o, path, nil)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		var no ui.Refused
		if json.Unmarshal(text, &no) != nil || no.Message == "" {
			return fmt.Errorf("the role ui at %s answers %d %s", r.url, code, http.StatusText(code))
		}
		return errors.New("the role ui says: " + no.Message)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read what the role ui answers: %w", err)
	}
	return nil
}

// fetch gets what is at a path of the role's API, as the kubeconfig's user, or has it answer a body of JSON; with the status of the answer.
func (r *remote) fetch(ctx context.Context, o app.ClientOptions, path string, body []byte) (text []byte, code int, err error) {
	u, err := url.Parse(r.url)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, 0, fmt.Errorf("--ui: %.200q is no address that begins with https://", r.url)
	}
	config, err := app.RESTConfig(o)
	if err != nil {
		return nil, 0, err
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.ca != "" {
		text, err := os.ReadFile(r.ca)
		if err != nil {
			return nil, 0, fmt.Errorf("--ui-certificate-authority: %w", err)
		}
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(text) {
			return nil, 0, fmt.Errorf("--ui-certificate-authority: there is no certificate in %s", r.ca)
		}
	}
	if r.print != "" {
		trust = cycles.Pinned(r.print)
	}
	plain := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust}
	defer plain.CloseIdleConnections()
	config.Impersonate = rest.ImpersonationConfig{} // the role knows tokens alone
	as, err := rest.HTTPWrappersForConfig(config, plain)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the role ui: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, roleWithin)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.url, "/")+ui.API+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fmt.Errorf("ask the role ui: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	// Who follows a redirect would show the token elsewhere.
	resp, err := (&http.Client{Transport: as, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the role ui: %w", err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("ask the role ui: %w", err)
	}
	return text, resp.StatusCode, nil
}

// roleText is what the role says, for people.
func roleText(e *see.Explanation, width int) string {
	s := e.Reread(true).Text(width)
	if e.Start != nil {
		s += "starts " + e.Start.Text + "\n"
	}
	said := "as the scheduler saw it"
	if !e.Cycle.Scheduler {
		said = "not the scheduler's view"
	}
	if e.Cycle.Note != "" {
		said += "; " + e.Cycle.Note
	}
	return s + fmt.Sprintf("%s, %.0f s ago\n", said, e.Cycle.AgeSeconds)
}
