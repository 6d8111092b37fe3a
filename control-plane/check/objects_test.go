package check_test

// healthyObjects are those of a cluster of two nodes, with all that Headstart needs and a
// function.
const healthyObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {headstart.dev/node: ready}}
status: {nodeInfo: {containerRuntimeVersion: "containerd://2.4.2", kernelVersion: 6.18.0-amd64, operatingSystem: linux, architecture: amd64}}
---
apiVersion: v1
kind: Node
metadata: {name: node-2, labels: {headstart.dev/node: ready}}
status: {nodeInfo: {containerRuntimeVersion: "containerd://1.7.27-k3s1", kernelVersion: 5.15.0-91-generic, operatingSystem: linux, architecture: arm64}}
---
apiVersion: v1
kind: Namespace
metadata: {name: video}
---
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: headstart-controlplane, namespace: headstart-system}
spec:
  replicas: 2
  selector: {matchLabels: {app: controlplane}}
  template:
    spec:
      containers:
        - name: controlplane
          args: [--platform=kubernetes, --stores=/etc/headstart/stores/stores.yaml, --destinations=/etc/headstart/stores/destinations.yaml]
          volumeMounts: [{name: stores, mountPath: /etc/headstart/stores}]
      volumes: [{name: stores, configMap: {name: headstart-stores}}]
status: {replicas: 2, availableReplicas: 2}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: headstart-controlplane, namespace: headstart-system}
spec: {holderIdentity: controlplane-1}
---
apiVersion: v1
kind: Pod
metadata: {name: controlplane-1, namespace: headstart-system, labels: {app: controlplane}}
spec: {nodeName: node-1, containers: [{name: controlplane}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: headstart-ca, namespace: headstart-system}
data: {}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: headstart-stores, namespace: headstart-system}
data:
  stores.yaml: |
    - name: default
      s3: {endpoint: "http://s3:9000", buckets: [videos], credentialsSecret: s3-default}
    - name: archive
      namespaces: [video]
      s3: {endpoint: "http://s3:9000", buckets: [old], credentialsSecret: s3-archive}
  destinations.yaml: |
    - name: orders
      namespaces: [video]
      postgres: {address: "db:5432", user: orders, credentialsSecret: orders-db, tls: {}}
    - {name: legacy, tcp: {address: "legacy:9000"}}
---
apiVersion: v1
kind: Secret
metadata: {name: orders-db, namespace: headstart-system}
data: {credentials: YQ==}
---
apiVersion: v1
kind: Secret
metadata: {name: s3-default, namespace: headstart-system}
data: {credentials: YQ==}
---
apiVersion: v1
kind: Secret
metadata: {name: s3-archive, namespace: headstart-system}
data: {credentials: YQ==}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: headstart-node, namespace: headstart-system}
spec:
  selector: {matchLabels: {app: node}}
  template: {spec: {containers: [{name: node}]}}
status: {desiredNumberScheduled: 2, numberReady: 2, updatedNumberScheduled: 2}
---
apiVersion: v1
kind: Pod
metadata: {name: node-a, namespace: headstart-system, labels: {app: node}}
spec: {nodeName: node-1, containers: [{name: node}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: node-b, namespace: headstart-system, labels: {app: node}}
spec: {nodeName: node-2, containers: [{name: node}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: headstart}
handler: headstart
scheduling: {nodeSelector: {headstart.dev/node: ready}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: headstart-services}
status: {typeChecking: {}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: headstart-services}
spec: {policyName: headstart-services, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: headstart-knative-services}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: headstart-knative-services}
spec: {policyName: headstart-knative-services, validationActions: [Deny, Audit]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: headstart-pods}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: headstart-pods}
spec: {policyName: headstart-pods, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: headstart-routes}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: headstart-routes}
spec: {policyName: headstart-routes, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: headstart-addresses}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: headstart-addresses}
spec: {policyName: headstart-addresses, validationActions: [Deny]}
---
apiVersion: v1
kind: Service
metadata:
  name: fire
  namespace: default
  annotations: {headstart.dev/input: "s3://videos/{header.x-key}", headstart.dev/scale-to-zero: 60s}
spec: {selector: {app: fire}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: plain, namespace: default, annotations: {other.dev/input: x}}
spec: {selector: {app: plain}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: fire, namespace: default}
spec: {selector: {matchLabels: {app: fire}}, template: {metadata: {labels: {app: fire, tier: web}}}}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: scene, namespace: video, annotations: {headstart.dev/input: "s3://old/{header.x-key}", headstart.dev/store: archive}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod}}
spec: {template: {spec: {containers: [{name: discovery, image: "docker.io/istio/pilot:1.31.1-distroless"}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: istiod-1, namespace: istio-system, labels: {istio: pilot}}
spec: {nodeName: node-1, containers: [{name: discovery}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gateway-1, namespace: istio-system, labels: {istio: ingressgateway, headstart.dev/gateway: "true"}}
spec:
  nodeName: node-1
  serviceAccountName: istio-ingressgateway-service-account
  containers:
    - name: istio-proxy
      args: [proxy, router]
      env: [{name: ISTIO_META_HEADSTART, value: "true"}]
      volumeMounts: [{name: headstart, mountPath: /run/headstart/gateway}]
  volumes: [{name: headstart, hostPath: {path: /run/headstart/gateway}}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: egress-1, namespace: istio-system, labels: {istio: egressgateway}}
spec: {nodeName: node-2, containers: [{name: istio-proxy, args: [proxy, router]}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: TrafficExtension
metadata: {name: headstart-prefetch, namespace: istio-system}
spec:
  wasm:
    failStrategy: FAIL_OPEN
    pluginConfig: {version: VERSION, hintCluster: headstart-hints, ingressEndpoint: /run/headstart/gateway/ingress.sock, functions: []}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: headstart-keys, namespace: istio-system}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: headstart-gateways, namespace: istio-system}
spec: {configPatches: [{patch: {value: {name: headstart-gateway,
  typed_extension_protocol_options: {options: {http_filters: [{name: headstart-key}]}}}}}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: headstart.default.fire
  namespace: istio-system
  labels: {app.kubernetes.io/managed-by: headstart, app.kubernetes.io/component: function}
status: {validationMessages: [{type: {code: IST0151, name: EnvoyFilterUsesRelativeOperation}, level: WARNING}]}
`

// localService takes callers to the gateway of their own node.
const localService = "{apiVersion: v1, kind: Service, metadata: {name: gateway, namespace: istio-system}, spec: {internalTrafficPolicy: Local, selector: {istio: ingressgateway}}}"
