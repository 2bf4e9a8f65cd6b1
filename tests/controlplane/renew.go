// Handing the control plane on: what one test has left goes, so that the next one needs no start of its own.
//
// A start costs two seconds of CPU, and a test most often leaves nothing but objects of a few kinds. Those are removed
// from the store, behind the API server, whose watches tell it. What is not among these kinds has to be as it was when
// the control plane became ready; if it is not, or if somebody still talks to the server, the hand-over fails, and
// whoever asked for it starts another control plane.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// registry is where the API server keeps everything.
const registry = "/registry/"

// renewTimeout bounds a hand-over, which takes milliseconds.
const renewTimeout = 30 * time.Second

// wiped are the kinds of which a test may leave objects, and how they are listed. Those of custom resources are added.
var wiped = map[string]schema.GroupVersionResource{
	"/registry/configmaps/": {Version: "v1", Resource: "configmaps"},
	"/registry/events/":     {Version: "v1", Resource: "events"},
	"/registry/leases/":     {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"/registry/minions/":    nodesResource,
	"/registry/pods/":       {Version: "v1", Resource: "pods"},
}

// wipedGroups are the groups of custom resources that tests make.
var wipedGroups = []string{"cilium.io", "nodeipam.io"}

// serversOwn are the keys that the API server writes by itself at any time.
var serversOwn = []string{
	"/registry/apiregistration.k8s.io/",
	"/registry/configmaps/kube-system/extension-apiserver-authentication",
	"/registry/flowschemas/",
	"/registry/ipaddresses/",
	"/registry/leases/kube-system/apiserver-",
	"/registry/masterleases/",
	"/registry/namespaces/default",
	"/registry/namespaces/kube-node-lease",
	"/registry/namespaces/kube-public",
	"/registry/namespaces/kube-system",
	"/registry/prioritylevelconfigurations/",
	"/registry/ranges/",
	"/registry/servicecidrs/",
	"/registry/services/endpoints/default/kubernetes",
	"/registry/services/specs/default/kubernetes",
	markKey,
}

func isServersOwn(key string) bool {
	return slices.ContainsFunc(serversOwn, func(own string) bool { return strings.HasPrefix(key, own) })
}

// baseline is the store of a control plane to which no test has written.
type baseline struct {
	values map[string][]byte
	// wiped are the prefixes of the keys of the kinds in `wiped`, and of the custom resources.
	wiped map[string]schema.GroupVersionResource
}

// takeBaseline keeps what the store holds now.
func (s *supervisor) takeBaseline(ctx context.Context) error {
	values, err := s.stored(ctx)
	if err != nil {
		return err
	}
	b := &baseline{values: values, wiped: maps.Clone(wiped)}
	for _, group := range wipedGroups {
		// Which version is asked for does not matter: all of them are one cache.
		versions, err := s.installer.core.Discovery().ServerGroups()
		if err != nil {
			return err
		}
		for _, found := range versions.Groups {
			if found.Name != group {
				continue
			}
			for _, version := range found.Versions {
				list, err := s.installer.core.Discovery().ServerResourcesForGroupVersion(version.GroupVersion)
				if err != nil {
					return err
				}
				for _, resource := range list.APIResources {
					if !strings.Contains(resource.Name, "/") {
						b.wiped[registry+group+"/"+resource.Name+"/"] =
							schema.GroupVersionResource{Group: group, Version: version.Version, Resource: resource.Name}
					}
				}
			}
		}
	}
	s.baseline = b
	return nil
}

// stored is everything in the store that the API server does not write by itself.
func (s *supervisor) stored(ctx context.Context) (map[string][]byte, error) {
	values := map[string][]byte{}
	for from, end := registry, clientv3.GetPrefixRangeEnd(registry); ; {
		page, err := s.observer.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(snapshotPage))
		if err != nil {
			return nil, err
		}
		for _, kv := range page.Kvs {
			key := string(kv.Key)
			if !isServersOwn(key) {
				values[key] = kv.Value
			}
		}
		if !page.More {
			return values, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// renew makes the control plane as it was when it became ready, for agents of these families and this mode.
func (s *supervisor) renew(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	s.collector.stop()
	if err := s.awaitAlone(ctx); err != nil {
		return err
	}
	err := s.observer.beginAnew(ctx, func() error {
		if err := s.wipe(ctx); err != nil {
			return err
		}
		s.families, s.ipam, s.ciliumConfig = o.families, o.ipam, o.ciliumConfig
		s.judge.Renew()
		if s.fixesPodCIDRs() {
			s.judge.FixPodCIDRs()
		}
		s.observer.judgeCarriersOf(s.ipam)
		return nil
	})
	if err != nil {
		return err
	}
	if s.ciliumConfig {
		if err := s.installer.ensureCiliumConfig(ctx, s.families, s.ipam); err != nil {
			return err
		}
	}
	return nil
}

// wipe removes what tests may leave, and returns when the caches of the API server have heard of it.
func (s *supervisor) wipe(ctx context.Context) error {
	for prefix := range s.baseline.wiped {
		if err := s.wipeKind(ctx, prefix); err != nil {
			return err
		}
	}
	if err := s.compareWithBaseline(ctx); err != nil {
		return err
	}
	for prefix, resource := range s.baseline.wiped {
		// A list without a revision is as new as the store, and is answered by the cache as soon as that is.
		list, err := s.installer.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			key := objectKey(prefix, object.GetNamespace(), object.GetName())
			if _, kept := s.baseline.values[key]; !kept && !isServersOwn(key) {
				return fmt.Errorf("there is %s %s again", resource.Resource, object.GetName())
			}
		}
	}
	return s.compareWithBaseline(ctx)
}

func objectKey(prefix, namespace, name string) string {
	if namespace != "" {
		return prefix + namespace + "/" + name
	}
	return prefix + name
}

func (s *supervisor) wipeKind(ctx context.Context, prefix string) error {
	kept := slices.Collect(func(yield func(string) bool) {
		for key := range s.baseline.values {
			if strings.HasPrefix(key, prefix) && !yield(key) {
				return
			}
		}
	})
	for _, own := range serversOwn {
		if !strings.HasPrefix(own, prefix) {
			continue
		}
		found, err := s.observer.client.Get(ctx, own, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range found.Kvs {
			kept = append(kept, string(kv.Key))
		}
	}
	slices.Sort(kept)
	// What lies between those that stay goes, a range at a time.
	from := prefix
	for _, key := range append(kept, clientv3.GetPrefixRangeEnd(prefix)) {
		if from < key {
			if _, err := s.observer.client.Delete(ctx, from, clientv3.WithRange(key)); err != nil {
				return err
			}
		}
		from = key + "\x00"
	}
	for _, key := range kept {
		value, ofBaseline := s.baseline.values[key]
		if !ofBaseline {
			continue
		}
		found, err := s.observer.client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(found.Kvs) == 1 && bytes.Equal(found.Kvs[0].Value, value) {
			continue
		}
		if _, err := s.observer.client.Put(ctx, key, string(value)); err != nil {
			return err
		}
	}
	return nil
}

// compareWithBaseline names the first key that is not as it was.
func (s *supervisor) compareWithBaseline(ctx context.Context) error {
	now, err := s.stored(ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if value, known := s.baseline.values[key]; !known {
			return fmt.Errorf("there is %s", key)
		} else if !bytes.Equal(value, now[key]) {
			return fmt.Errorf("%s has changed", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.baseline.values)) {
		if _, there := now[key]; !there {
			return fmt.Errorf("%s is gone", key)
		}
	}
	return nil
}

// awaitAlone returns when nobody but this program is connected to the API server: what a client has sent may still be
// carried out as long as its connection is open.
func (s *supervisor) awaitAlone(ctx context.Context) error {
	for {
		n, err := strangers(s.ports.Apiserver, s.etcd.pid(), s.apiserver.pid())
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d connections to the API server are open", n), ctx.Err())
		case <-time.After(probePause):
		}
	}
}
