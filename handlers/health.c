#include "handlers/access.h"
#include "handlers/openapi.h"
#include "handlers/resources.h"
#include "http/response.h"

enum http_result livez(struct http_req *req)
{
    http_quiet(req);
    return http_reply_json(req, 200,
                           json_pack("{s:s, s:s}", "status", "ok", "build", service_of(req)->build));
}

enum http_result readyz(struct http_req *req)
{
    const struct service_host *host = &service_of(req)->host;
    char reason[SERVICE_REASON_SIZE] = "";
    struct err err;

    if (host->ready(host->host, reason)) {
        http_quiet(req);
        return http_reply_json(req, 200, json_pack("{s:s}", "status", "ready"));
    }
    err_set(&err, ERR_NOT_READY, "%s", reason);
    return http_problem(req, &err, NULL);
}

enum http_result openapi_get(struct http_req *req)
{
    return http_reply_static(req, 200, "application/yaml", embedded_openapi, embedded_openapi_len);
}
