package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/muster-scheduler/muster/internal/vm"
)

const (
	maxManifestBytes = 4 << 20 // what registries are asked to take at the least, and commonly do
	maxLayers        = 1000
)

// Media types of layers that are a disk. Structured suffixes, +qcow2 and +raw, count whatever comes before them, such as in
// application/vnd.lfedge.disk.layer.v1+qcow2 (EVE, lf-edge/edge-containers). These are what the shared MIME database and osbuild call the formats.
var diskTypes = map[string]Format{
	"application/x-qcow2":          QCOW2,
	"application/x-qemu-disk":      QCOW2,
	"application/x-raw-disk-image": Raw,
}

// plainTypes say nothing about the content: what `oras push` gives files by default, and the type of any bytes. The file's name decides then,
// which is in the annotation titleKey.
var plainTypes = []string{"application/octet-stream", string(types.OCIUncompressedLayer)}

const titleKey = "org.opencontainers.image.title"

// diskLayer reports whether a layer is a disk's file, and as which format it is declared, which may be none.
func diskLayer(d v1.Descriptor) (Format, bool) {
	kind, _, _ := strings.Cut(string(d.MediaType), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch format, ok := diskTypes[kind]; {
	case ok:
		return format, true
	case strings.HasSuffix(kind, "+qcow2"):
		return QCOW2, true
	case strings.HasSuffix(kind, "+raw"):
		return Raw, true
	}
	if slices.Contains(plainTypes, kind) {
		switch strings.ToLower(path.Ext(d.Annotations[titleKey])) {
		case ".qcow2":
			return QCOW2, true
		case ".raw":
			return Raw, true
		case ".img":
			return "", true
		}
	}
	return "", false
}

// containerTypes are layers that are archives of files.
var containerTypes = []types.MediaType{
	types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
}

// endpoint is a registry or a mirror of one.
type endpoint struct {
	host  string
	path  string // comes before repositories, and ends with / if not empty
	plain bool   // without TLS
}

func (m Mirror) endpoint() (endpoint, error) {
	bad := func(rule string) (endpoint, error) {
		return endpoint{}, vm.Errorf(vm.Invalid, "mirror %s: %s", quote(m.Host+"="+m.URL), rule)
	}
	if _, err := ParseName(m.Host + "/x"); err != nil || strings.Contains(m.Host, "/") || m.Host == "" {
		return bad("must begin with the host of a registry")
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS {
		return bad("its URL must be http:// or https://, a host, and at most a path")
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if _, err := ParseName("x/" + prefix); err != nil {
			return bad("the path of its URL must be made as a repository's name is")
		}
		prefix += "/"
	}
	return endpoint{host: u.Host, path: prefix, plain: u.Scheme == schemeHTTP}, nil
}

// isNode reports whether a host's name means this machine.
func isNode(host string) bool {
	u := url.URL{Host: host}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") || err == nil && ip.IsLoopback()
}

// endpoints gives whom to ask for a registry's images, in order.
func (s *Store) endpoints(host string) []endpoint {
	var all []endpoint
	for _, m := range s.options.Mirrors {
		if m.Host == host || isDocker(m.Host) && isDocker(host) {
			if e, err := m.endpoint(); err == nil {
				all = append(all, e)
			}
		}
	}
	if isDocker(host) {
		host = "registry-1.docker.io" // where docker.io's registry answers
	}
	return append(all, endpoint{host: host, plain: isNode(host)})
}

// repository is one repository at one endpoint, ready to be asked.
type repository struct {
	caller *caller
	client *http.Client
	base   string // URL up to the repository's name
}

func connect(e endpoint, mirror bool, repo string, auth *Auth) (*repository, error) {
	at := &url.URL{Scheme: schemeHTTPS, Host: e.host}
	if e.plain {
		at.Scheme = schemeHTTP
	}
	c, err := newCaller(at, Transport{})
	if err != nil {
		return nil, err
	}
	c.loopback = true
	repo = e.path + repo
	rt := &authorizer{caller: c, auth: auth.forEndpoint(e, mirror), scope: "repository:" + repo + ":pull"}
	return &repository{caller: c, client: c.client(rt, 0), base: at.String() + "/v2/" + repo}, nil
}

// manifest fetches a manifest or an index by tag or digest.
func (r *repository) manifest(ctx context.Context, reference string, want Digest) ([]byte, types.MediaType, Digest, error) {
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/manifests/"+reference, nil)
	if err != nil {
		return nil, "", "", err
	}
	for _, kind := range []types.MediaType{types.OCIManifestSchema1, types.DockerManifestSchema2, types.OCIImageIndex, types.DockerManifestList} {
		request.Header.Add("Accept", string(kind))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, "", "", transient(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, "", "", badStatus(response)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxManifestBytes+1))
	if err != nil {
		return nil, "", "", transient(ctx, err)
	}
	if len(data) > maxManifestBytes {
		return nil, "", "", vm.Errorf(vm.Invalid, "its manifest has more than %d bytes", maxManifestBytes)
	}
	sum := sha256.Sum256(data)
	digest := Digest(sha256Prefix + hex.EncodeToString(sum[:]))
	if want != "" && digest != want {
		return nil, "", "", vm.Errorf(vm.Invalid, "its manifest has the digest %s, and %s is asked for", digest, want)
	}
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return data, types.MediaType(strings.TrimSpace(kind)), digest, nil
}

// resolve finds the manifest of this node's architecture, and gives the digest that the reference stands for.
func (r *repository) resolve(ctx context.Context, reference string, want Digest, architecture string) (*v1.Manifest, Digest, error) {
	data, kind, top, err := r.manifest(ctx, reference, want)
	if err != nil {
		return nil, "", err
	}
	if kind.IsIndex() {
		list, err := v1.ParseIndexManifest(bytes.NewReader(data))
		if err != nil {
			return nil, "", vm.Errorf(vm.Invalid, "its index: %w", err)
		}
		one, err := choose(list.Manifests, architecture)
		if err != nil {
			return nil, "", err
		}
		if data, kind, _, err = r.manifest(ctx, string(one), one); err != nil {
			return nil, "", err
		}
	}
	if !kind.IsImage() {
		return nil, "", vm.Errorf(vm.Invalid, "its manifest has the media type %s, and must be an OCI or Docker (version 2) image manifest", quote(string(kind)))
	}
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, "", vm.Errorf(vm.Invalid, "its manifest: %w", err)
	}
	return m, top, nil
}

// choose takes the manifest for an architecture, or the only one there is if it says nothing of platforms.
func choose(list []v1.Descriptor, architecture string) (Digest, error) {
	var found []v1.Descriptor
	for _, d := range list {
		if d.MediaType.IsImage() && (d.Platform != nil && d.Platform.Architecture == architecture && d.Platform.OS == "linux" || d.Platform == nil && len(list) == 1) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		return "", vm.Errorf(vm.NotFound, "its index has no manifest for linux/%s", architecture)
	}
	return ParseDigest(found[0].Digest.String()) // the first: variants of an architecture are for programs
}

// pullRegistry pulls an artifact with one disk, or a container image with one. names has what the image is to be called; reference is where it is,
// which a translation may make another.
func (s *Store) pullRegistry(ctx context.Context, names record, asked, reference Name, auth *Auth, progress func(int64, int64)) (record, error) {
	host, repo := splitHost(reference.Repository)
	if host == "" {
		host = dockerHost
	}
	if isDocker(host) && !strings.Contains(repo, "/") {
		repo = "library/" + repo
	}
	endpoints := s.endpoints(host)
	var errs []error
	for i, e := range endpoints {
		mirror := i+1 < len(endpoints)
		r, err := s.pullFrom(ctx, e, mirror, repo, names, asked, reference, auth, progress)
		if err == nil {
			return r, nil
		}
		// A mirror's no is not the registry's; a full disk and an end of the pull are everybody's.
		if !mirror || context.Cause(ctx) != nil || vm.KindOf(err) == vm.Exhausted || vm.KindOf(err) == vm.Internal {
			if len(errs) > 0 {
				return record{}, vm.Errorf(vm.KindOf(err), "%w (%w)", err, errors.Join(errs...))
			}
			return record{}, err
		}
		errs = append(errs, fmt.Errorf("mirror %s: %w", e.host, err))
	}
	return record{}, errors.Join(errs...) // never: the registry itself is the last
}

func (s *Store) pullFrom(ctx context.Context, e endpoint, mirror bool, repo string, names record, asked, reference Name, auth *Auth, progress func(int64, int64)) (record, error) {
	r, err := connect(e, mirror, repo, auth)
	if err != nil {
		return record{}, err
	}
	defer r.caller.close()
	tag := reference.Tag
	if reference.Digest != "" {
		tag = string(reference.Digest)
	}
	manifest, digest, err := r.resolve(ctx, tag, reference.Digest, s.options.Architecture)
	if err != nil {
		return record{}, err
	}
	names.Digests = []string{asked.With(digest)}
	// The credentials were good for the manifest, so what came with it before may be used.
	known, ok, err := s.known(names, func(r record) bool {
		return slices.ContainsFunc(r.Digests, func(d string) bool { return strings.HasSuffix(d, "@"+string(digest)) })
	})
	if ok || err != nil {
		return known, err
	}
	return s.pullManifest(ctx, r, manifest, names, progress)
}

func (s *Store) pullManifest(ctx context.Context, r *repository, m *v1.Manifest, names record, progress func(int64, int64)) (record, error) {
	if len(m.Layers) > maxLayers {
		return record{}, vm.Errorf(vm.Invalid, "its manifest has %d layers, and may have at most %d", len(m.Layers), maxLayers)
	}
	var (
		disks    []v1.Descriptor
		archives []v1.Descriptor
		declared Format
	)
	for i, layer := range m.Layers {
		if _, err := ParseDigest(layer.Digest.String()); err != nil || layer.Size < 0 {
			return record{}, vm.Errorf(vm.Invalid, "its manifest: layers[%d]: must have a sha256 digest and a size", i)
		}
		if format, ok := diskLayer(layer); ok {
			disks, declared = append(disks, layer), format
		} else if slices.Contains(containerTypes, layer.MediaType) {
			archives = append(archives, layer)
		}
	}
	switch {
	case len(disks) == 1:
		return s.pullDisk(ctx, r, disks[0], declared, names, progress)
	case len(disks) > 1:
		return record{}, vm.Errorf(vm.Invalid, "its manifest has %d layers that are disks, and must have one", len(disks))
	case len(archives) == 0:
		return record{}, vm.Errorf(vm.Invalid, "its manifest has no layer that is a disk (media type *+qcow2, *+raw, application/x-qcow2 …, or a title *.qcow2, *.raw, *.img), and no container's layers with one")
	}
	return s.pullContainerDisk(ctx, r, archives, names, progress)
}

// blob fetches a layer into a part, which the caller has to close, to keep or to discard.
func (s *Store) blob(ctx context.Context, r *repository, layer v1.Descriptor, key string, progress func(int64, int64)) (*part, error) {
	if layer.Size > s.options.MaxBytes {
		return nil, vm.Errorf(vm.Exhausted, "layer %s has %d bytes, and this node takes at most %d", layer.Digest, layer.Size, s.options.MaxBytes)
	}
	p, err := s.openPart(ctx, key)
	if err != nil {
		return nil, err
	}
	err = s.fetch(ctx, p, download{
		client: r.client, url: r.base + "/blobs/" + layer.Digest.String(), digest: Digest(layer.Digest.String()), size: layer.Size, progress: progress,
	})
	if err != nil {
		p.leave(err)
		return nil, fmt.Errorf("layer %s: %w", layer.Digest, err)
	}
	return p, nil
}

func (s *Store) pullDisk(ctx context.Context, r *repository, layer v1.Descriptor, declared Format, names record, progress func(int64, int64)) (record, error) {
	id := Digest(layer.Digest.String())
	key := partKey("blob", string(id))
	release, err := s.hold(ctx, key)
	if err != nil {
		return record{}, err
	}
	defer release()
	known, ok, err := s.known(names, func(r record) bool { return r.ID == id && (declared == "" || r.Format == declared) })
	if ok || err != nil {
		return known, err
	}
	p, err := s.blob(ctx, r, layer, key, progress)
	if err != nil {
		return record{}, err
	}
	return s.take(p, declared, names)
}

// take judges a part that is a disk, and keeps it.
func (s *Store) take(p *part, declared Format, names record) (record, error) {
	if err := p.stretch(); err != nil {
		p.leave(err)
		return record{}, err
	}
	format, virtual, err := judge(p.f, p.size, declared, s.options.MaxVirtualBytes)
	if err != nil {
		p.leave(err)
		return record{}, err
	}
	names.Format, names.VirtualSize = format, virtual
	return p.keep(names)
}
