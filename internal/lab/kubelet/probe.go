package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// eager is how often a container that is not started or not ready yet is asked, if its probe's period is longer: a lab does not
// wait ten seconds to see that a process has been there for nine. How often it may fail counts in its own periods all the same.
const eager = 200 * time.Millisecond

// probe asks one question of a container.
type probe struct {
	spec    *corev1.Probe
	host    string // where the process listens
	ports   []corev1.ContainerPort
	program string // what the container's image is here
	env     []string
	dir     string       // where commands run
	answer  func() error // instead of asking, where time is not real; nil
}

// attend asks the probes of a process that has been started until ctx ends: the startup probe first, then the others. It shows
// what they say, and calls ill, once, when the process is to be restarted.
func (c *command) attend(ctx context.Context, ill func(error)) {
	if c.startup != nil {
		limit := time.Now().Add(c.startup.delay() + c.startup.period()*time.Duration(max(1, c.startup.spec.FailureThreshold)))
		if !wait(ctx, c.startup.delay()) {
			return
		}
		for {
			err := c.startup.ask(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			if time.Now().After(limit) {
				ill(fmt.Errorf("startup probe: %w", err))
				return
			}
			if !wait(ctx, min(eager, c.startup.period())) {
				return
			}
		}
	}
	c.show(func(f *face) { f.started, f.ready = true, c.readiness == nil })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.readiness != nil {
			c.askReady(ctx)
		}
	}()
	if c.liveness != nil {
		c.askAlive(ctx, ill)
	}
	<-done
}

// askReady follows the readiness probe.
func (c *command) askReady(ctx context.Context) {
	if !wait(ctx, c.readiness.delay()) {
		return
	}
	good, bad, ready := int32(0), int32(0), false
	for {
		if err := c.readiness.ask(ctx); ctx.Err() != nil {
			return
		} else if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case !ready && good >= max(1, c.readiness.spec.SuccessThreshold):
			ready = true
		case ready && bad >= max(1, c.readiness.spec.FailureThreshold):
			ready = false
		}
		c.show(func(f *face) { f.ready = ready })
		pause := c.readiness.period()
		if !ready {
			pause = min(eager, pause)
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

// askAlive follows the liveness probe until it fails too often.
func (c *command) askAlive(ctx context.Context, ill func(error)) {
	if !wait(ctx, c.liveness.delay()) {
		return
	}
	for bad := int32(0); ; {
		err := c.liveness.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			bad = 0
		} else if bad++; bad >= max(1, c.liveness.spec.FailureThreshold) {
			c.show(func(f *face) { f.ready = false })
			ill(fmt.Errorf("liveness probe: %w", err))
			return
		}
		if !wait(ctx, c.liveness.period()) {
			return
		}
	}
}

// wait waits; false when ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *probe) delay() time.Duration { return time.Duration(p.spec.InitialDelaySeconds) * time.Second }

func (p *probe) period() time.Duration {
	if p.spec.PeriodSeconds <= 0 {
		return 10 * time.Second
	}
	return time.Duration(p.spec.PeriodSeconds) * time.Second
}

// ask asks once; nil is a yes.
func (p *probe) ask(ctx context.Context) error {
	if p.answer != nil {
		return p.answer()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, p.spec.TimeoutSeconds))*time.Second)
	defer cancel()
	switch s := p.spec; {
	case s.HTTPGet != nil:
		return p.get(ctx, s.HTTPGet)
	case s.TCPSocket != nil:
		address, err := p.address(s.TCPSocket.Host, s.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	case s.Exec != nil && len(s.Exec.Command) > 0:
		return p.execute(ctx, s.Exec.Command)
	}
	return errors.New("this kind of probe is not played")
}

func (p *probe) get(ctx context.Context, get *corev1.HTTPGetAction) error {
	address, err := p.address(get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	// As a kubelet: a connection for each question, and any certificate will do.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s says %s: %s", req.URL, resp.Status, strings.TrimSpace(string(said)))
	}
	return nil
}

// address is where a probe looks: at the process's own address, whatever the port is called.
func (p *probe) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = p.host
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		i := slices.IndexFunc(p.ports, func(c corev1.ContainerPort) bool { return c.Name == port.StrVal })
		if i < 0 {
			if number = port.IntValue(); number == 0 {
				return "", fmt.Errorf("the container has no port called %q", port.StrVal)
			}
		} else {
			number = int(p.ports[i].ContainerPort)
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// execute runs a command beside the process. The image's own program is known by its name.
func (p *probe) execute(ctx context.Context, argv []string) error {
	program := argv[0]
	if filepath.Base(program) == filepath.Base(p.program) {
		program = p.program
	}
	cmd := exec.CommandContext(ctx, program, argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.dir, time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.200s", argv[0], err, said)
	}
	return nil
}
