// The feeder of the oracle: one etcd watch over the keys of both kinds, in the order of the store.
//
// In mode kubernetes Nodes carry what CiliumNodes carry in the others, which agents then copy onto their CiliumNodes: there
// Nodes are judged as carriers, and the copies are not.
//
// It bypasses the API server and its caches. The range of the watch runs from the first of the two key prefixes to
// the last one, so that one watch, hence one order, has both; what else lies in the range is skipped.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"nodeipam.io/tests/controlplane/oracle"
)

const (
	ciliumNodeKeys  = "/registry/cilium.io/ciliumnodes/"
	nodeKeys        = "/registry/minions/"
	nodeIPBlockKeys = "/registry/nodeipam.io/nodeipblocks/"
	// markKey lies inside the range of the watch and belongs to no API resource: when the watch shows a mark, everything
	// before the mark was judged.
	markKey = "/registry/controlplane-oracle-mark"
	// snapshotPage bounds one answer of etcd; a CiliumNode may have 25 kB.
	snapshotPage = 500
	// oracleTimeout bounds how long an answer may wait for the watch to catch up.
	oracleTimeout = time.Minute
)

// observer feeds an oracle and knows how far it has come.
type observer struct {
	client *clientv3.Client
	judge  *oracle.Oracle
	// carriers are the keys of the objects that carry CIDRs.
	carriers string
	tell     func([]oracle.Finding)

	mu       sync.Mutex
	position int64         // Everything up to this revision was judged.
	moved    chan struct{} // Closed and replaced when position grows.

	cancel context.CancelFunc // Ends the watch; owned by whoever holds pauseMu.
	done   chan struct{}
	// pauseMu lets one at a time hold up the watch.
	pauseMu sync.Mutex
}

// newObserver reads what the store holds and watches from there. Called before the API server first runs on this
// data, it sees everything from before the first write.
func newObserver(ctx context.Context, server, ipam string, judge *oracle.Oracle, tell func([]oracle.Finding)) (*observer, error) {
	// The watch resumes by itself when etcd comes back; the default back-off of gRPC grows to two minutes.
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{server},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second})},
	})
	if err != nil {
		return nil, err
	}
	o := &observer{client: client, judge: judge, tell: tell, moved: make(chan struct{})}
	o.judgeCarriersOf(ipam)
	if err := o.snapshot(ctx); err != nil {
		return nil, fmt.Errorf("reading the store for the oracle: %w", err)
	}
	o.resume(ctx)
	return o, nil
}

// judgeCarriersOf says which objects carry CIDRs in the mode. The watch must not run.
func (o *observer) judgeCarriersOf(ipam string) {
	o.carriers = ciliumNodeKeys
	if ipam == "kubernetes" {
		o.carriers = nodeKeys
	}
}

// snapshot feeds what the store holds at one revision, claims first, so that it is judged as a whole.
func (o *observer) snapshot(ctx context.Context) error {
	head, err := o.client.Get(ctx, markKey)
	if err != nil {
		return err
	}
	revision := head.Header.Revision
	for _, prefix := range []string{nodeIPBlockKeys, o.carriers} {
		for from := prefix; ; {
			page, err := o.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
				clientv3.WithRev(revision), clientv3.WithLimit(snapshotPage))
			if err != nil {
				return err
			}
			for _, kv := range page.Kvs {
				o.feed(revision, string(kv.Key), kv.Value)
			}
			if !page.More {
				break
			}
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	o.moveTo(revision)
	return nil
}

// resume starts the watch after the position.
func (o *observer) resume(ctx context.Context) {
	ctx, o.cancel = context.WithCancel(ctx)
	o.done = make(chan struct{})
	go func() {
		defer close(o.done)
		o.watch(ctx)
	}()
}

func (o *observer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		changes := o.client.Watch(ctx, ciliumNodeKeys,
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(nodeIPBlockKeys)),
			clientv3.WithRev(o.reached()+1))
		for batch := range changes {
			if batch.CompactRevision != 0 {
				o.lost(ctx, batch.CompactRevision)
				break
			}
			for _, change := range batch.Events {
				var value []byte
				if change.Type == clientv3.EventTypePut {
					value = change.Kv.Value
				}
				o.feed(change.Kv.ModRevision, string(change.Kv.Key), value)
			}
			// The position moves by whole batches only: a batch ends between transactions.
			if n := len(batch.Events); n > 0 {
				o.moveTo(batch.Events[n-1].Kv.ModRevision)
			}
		}
		select { // The client ends a watch for good only on errors that do not pass at once.
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

// lost records that events are gone for good and goes on from what the store holds now.
func (o *observer) lost(ctx context.Context, compacted int64) {
	o.tell(o.judge.Compacted(o.reached(), compacted))
	o.judge.Forget()
	for ctx.Err() == nil {
		if err := o.snapshot(ctx); err == nil {
			return
		}
		select { // etcd may be down just now.
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}

// beginAnew carries out change while nothing is judged, forgets what the store held, and goes on from what the store
// holds then. The watch that follows outlives ctx.
func (o *observer) beginAnew(ctx context.Context, change func() error) error {
	o.pauseMu.Lock()
	defer o.pauseMu.Unlock()
	o.cancel()
	<-o.done
	if err := change(); err != nil {
		return err
	}
	o.judge.Forget()
	if err := o.snapshot(ctx); err != nil {
		return err
	}
	o.resume(context.WithoutCancel(ctx))
	return nil
}

func (o *observer) feed(revision int64, key string, value []byte) {
	e := oracle.Event{Revision: revision, Value: value}
	var ours bool
	if e.Name, ours = strings.CutPrefix(key, o.carriers); ours {
		e.Kind = oracle.CiliumNode
		if o.carriers == nodeKeys && value != nil {
			e.Value = carriedByNode(value)
		}
	} else if e.Name, ours = strings.CutPrefix(key, nodeIPBlockKeys); ours {
		e.Kind = oracle.NodeIPBlock
	} else {
		return
	}
	o.tell(o.judge.Apply(e))
}

func (o *observer) reached() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.position
}

func (o *observer) moveTo(revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.position = revision
	close(o.moved)
	o.moved = make(chan struct{})
}

// catchUp writes a mark and returns its revision when everything before it was judged.
func (o *observer) catchUp(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, oracleTimeout)
	defer cancel()
	mark, err := o.client.Put(ctx, markKey, "")
	if err != nil {
		return 0, fmt.Errorf("writing the oracle's mark: %w", err)
	}
	for {
		o.mu.Lock()
		position, moved := o.position, o.moved
		o.mu.Unlock()
		if position >= mark.Header.Revision {
			return mark.Header.Revision, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, fmt.Errorf("the oracle is at revision %d and did not reach %d in time", position, mark.Header.Revision)
		}
	}
}

// report returns the findings up to now, and the revision that "now" is.
func (o *observer) report(ctx context.Context) (*oracle.Report, int64, error) {
	revision, err := o.catchUp(ctx)
	if err != nil {
		return nil, 0, err
	}
	report, fresh := o.judge.Report(time.Now())
	o.tell(fresh)
	return &report, revision, nil
}

// compact makes etcd forget everything before its newest revision. behind holds the oracle up meanwhile, so that it
// loses events, which it must then report; otherwise it catches up first.
func (o *observer) compact(ctx context.Context, behind bool) (int64, error) {
	o.pauseMu.Lock()
	defer o.pauseMu.Unlock()
	if !behind {
		revision, err := o.catchUp(ctx)
		if err != nil {
			return 0, err
		}
		return revision, o.compactAt(ctx, revision)
	}
	o.cancel()
	<-o.done
	defer o.resume(ctx)
	var revision int64
	for range 2 { // One event to lose, and one that stays.
		mark, err := o.client.Put(ctx, markKey, "")
		if err != nil {
			return 0, err
		}
		revision = mark.Header.Revision
	}
	return revision, o.compactAt(ctx, revision)
}

func (o *observer) compactAt(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, oracleTimeout)
	defer cancel()
	if _, err := o.client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return errors.Join(fmt.Errorf("compacting at revision %d", revision), err)
	}
	return nil
}

// space raises or removes the alarm that etcd raises when its store has used up its quota: until it is removed, etcd
// refuses every write but deletions.
func (o *observer) space(ctx context.Context, full bool) error {
	ctx, cancel := context.WithTimeout(ctx, oracleTimeout)
	defer cancel()
	members, err := o.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("asking etcd for its members: %w", err)
	}
	for _, member := range members.Members {
		if !full {
			alarm := clientv3.AlarmMember{MemberID: member.ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
			if _, err := o.client.AlarmDisarm(ctx, &alarm); err != nil {
				return fmt.Errorf("removing the alarm: %w", err)
			}
			continue
		}
		request := etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: member.ID, Alarm: etcdserverpb.AlarmType_NOSPACE,
		}
		maintenance := etcdserverpb.NewMaintenanceClient(o.client.ActiveConnection())
		if _, err := maintenance.Alarm(ctx, &request); err != nil {
			return fmt.Errorf("raising the alarm: %w", err)
		}
	}
	return nil
}

// carriedByNode is the CiliumNode that would carry what a stored Node carries. Of a Node that can't be read it is
// no JSON, which the oracle reports.
func carriedByNode(value []byte) []byte {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	node, isNode := object.(*corev1.Node)
	if err != nil || !isNode {
		return value
	}
	type ipam struct {
		PodCIDRs []string `json:"podCIDRs"`
	}
	type spec struct {
		IPAM ipam `json:"ipam"`
	}
	cidrs := oracle.PodCIDRs(node.Spec.PodCIDRs, node.Annotations)
	carried, err := json.Marshal(map[string]spec{"spec": {IPAM: ipam{PodCIDRs: cidrs}}})
	if err != nil {
		return value
	}
	return carried
}
