package vcjobflow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
)

const (
	// patience is how long a pod may take to answer, as with probes of Kubernetes'; patienceInAll is how long all that a flow asks may take.
	patience, patienceInAll = time.Second, 5 * time.Second
	// askedPods is how many pods of a task are asked, the first by name.
	askedPods = 100
)

// errNotReady says that a pod is not there yet.
var errNotReady = errors.New("a pod is not there yet")

// ask asks the pods of a part's targets; nil: all answered well.
func (c *Controller) ask(ctx context.Context, a asked) error {
	for _, j := range a.jobs {
		for _, get := range a.probe.HTTPGetList {
			if err := c.each(ctx, j, get.TaskName, func(ctx context.Context, ip string) error { return c.get(ctx, ip, &get) }); err != nil {
				return err
			}
		}
		for _, tcp := range a.probe.TCPSocketList {
			if err := c.each(ctx, j, tcp.TaskName, func(ctx context.Context, ip string) error { return c.connect(ctx, ip, tcp.Port) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// each asks each pod of a Job's task, by its address. A Job without the task is not asked.
func (c *Controller) each(ctx context.Context, j *batch.Job, task string, ask func(ctx context.Context, ip string) error) error {
	t := taskOf(j, task)
	if t == nil {
		return nil
	}
	var pods corev1.PodList
	if err := c.Shell.Cache.List(ctx, &pods, client.InNamespace(j.Namespace), client.MatchingLabels{keys.JobName: j.Name, keys.TaskSpec: task}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the pods of Job %s: %w", j.Name, err)
	}
	n := int32(0)
	for i := range pods.Items {
		p := &pods.Items[i]
		if !metav1.IsControlledBy(p, j) || p.DeletionTimestamp != nil || p.Status.PodIP == "" {
			continue
		}
		if n++; n > askedPods {
			break
		}
		if err := patiently(ctx, p.Status.PodIP, ask); err != nil {
			return err
		}
	}
	if n < min(t.Replicas, askedPods) {
		return errNotReady
	}
	return nil
}

// patiently asks one pod, and no longer than a pod may take.
func patiently(ctx context.Context, ip string, ask func(ctx context.Context, ip string) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask(ctx, ip)
}

// connect says whether a port is open.
func connect(ctx context.Context, ip string, port int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	return conn.Close()
}

// asker makes requests to pods: no proxy, no connection that is kept, and no other address that an answer names.
var asker = http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// get says whether an address answers well: by a status from 200 to 399.
func get(ctx context.Context, ip string, what *flow.HTTPGet) error {
	path, err := url.Parse(what.Path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(ip, strconv.Itoa(what.Port)), Path: path.Path, RawQuery: path.RawQuery}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if h := what.HTTPHeader; h != nil {
		if r.Header.Set(h.Name, h.Value); http.CanonicalHeaderKey(h.Name) == "Host" {
			r.Host = h.Value
		}
	}
	answer, err := asker.Do(r)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		err = fmt.Errorf("the answer is %d", answer.StatusCode)
	}
	return errors.Join(err, answer.Body.Close())
}
