from __future__ import annotations
import json, time
from tests.cluster.kubelets import Kubelets, Image
from tests.cluster.images import topology
from tests.operating.process import Operator, grant_rights
from tests.support.kafka import eventually
import pytest

def app(name="delays", **spec):
    return {"apiVersion":"millpond.dev/v1alpha1","kind":"StreamApp","metadata":{"name":name},"spec":{"image":"delays:1","topology":"app:delays","replicas":2,"kafka":{"bootstrapServers":"kafka:9092"},"rollout":{"minReady":"500ms"},**spec}}

def test_first(api, api_server, background, crds, namespace, tmp_path):
    grant_rights(api, namespace)
    with Kubelets(background, api_server.admin, namespace, operator_namespace=namespace) as kubelets, Operator(api, api_server.admin, namespace, tmp_path) as operator:
        kubelets.images["delays:1"]=Image(topology(partitions=8)); kubelets.images["delays:2"]=Image(topology(partitions=8)); kubelets.images["delays:3"]=Image(topology(partitions=8, hash="h2", store="other"))
        try:
            t=time.time()
            operator.await_leading(); print("leads", time.time()-t)
            a=app(); a["metadata"]["namespace"]=namespace
            api.apply(a)
            def cond(name="Ready"):
                s=api.get("StreamApp",namespace,"delays").get("status",{})
                return next((c for c in s.get("conditions",[]) if c["type"]==name),{})
            eventually(lambda: cond().get("status")=="True","ready",30); print("ready", time.time()-t)
            print(json.dumps(api.get("StreamApp",namespace,"delays")["status"],indent=1))
            a["spec"]["replicas"]=4; api.apply(a)
            st=lambda: api.get("StreamApp",namespace,"delays").get("status",{})
            eventually(lambda: st().get("workers")=="4/4" and cond().get("status")=="True","scaled",30); print("scaled", time.time()-t)
            a["spec"]["replicas"]=2; api.apply(a)
            eventually(lambda: st().get("workers")=="2/2" and st()["replicas"]==2 and cond().get("status")=="True","scaled in",30); print("in", time.time()-t)
            a["spec"]["image"]="delays:2"; api.apply(a)
            eventually(lambda: st().get("image")=="delays:2" and cond().get("status")=="True" and st()["currentRevision"]==st()["targetRevision"],"upgraded",60); print("upgraded", time.time()-t)
            a["spec"]["image"]="delays:3"; api.apply(a)
            eventually(lambda: st().get("phase")=="Degraded" and cond("Degraded")["status"]=="True" and st()["replicas"]==2,"refused",60); print("refused", time.time()-t, cond("Degraded"))
            a["spec"]["suspended"]=True; api.apply(a)
            eventually(lambda: st().get("phase")=="Suspended","suspended",60); print("susp", time.time()-t, cond("Degraded"))
            a["spec"]["suspended"]=False; a["spec"]["image"]="delays:2"; api.apply(a)
            eventually(lambda: cond().get("status")=="True","resumed",60); print("resumed", time.time()-t)
            api.delete("StreamApp",namespace,"delays")
            eventually(lambda: not api.list("Pod",namespace) and not api.list("StatefulSet",namespace),"gone",90); print("gone", time.time()-t)
            print(kubelets.streams(namespace,"delays").pauses)
            assert not kubelets.violations()
        finally:
            print(operator.tail(80))
            for e in api.list("Event",namespace): print(e["type"], e["reason"], e["message"], e["count"] if "count" in e else "")
