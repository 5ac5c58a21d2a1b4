"""Requests and responses of DescribeClientQuotas, AlterClientQuotas."""

from typing import Annotated

from tailrace.wire.message import Api, Boolean, Float64, Int8, Int16, Int32, KafkaMessage, NullableSince, String


class QuotaFilterComponent(KafkaMessage, frozen=True, kw_only=True):
    entity_type: String = ""
    match_type: Int8 = 0
    match: Annotated[String | None, NullableSince(0)] = ""


class DescribeClientQuotasRequest(KafkaMessage, frozen=True, kw_only=True):
    components: tuple[QuotaFilterComponent, ...] = ()
    strict: Boolean = False


class DescribedQuotaEntity(KafkaMessage, frozen=True, kw_only=True):
    entity_type: String = ""
    entity_name: Annotated[String | None, NullableSince(0)] = ""


class QuotaValue(KafkaMessage, frozen=True, kw_only=True):
    key: String = ""
    value: Float64 = 0.0


class DescribedQuotas(KafkaMessage, frozen=True, kw_only=True):
    entity: tuple[DescribedQuotaEntity, ...] = ()
    values: tuple[QuotaValue, ...] = ()


class DescribeClientQuotasResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    entries: Annotated[tuple[DescribedQuotas, ...] | None, NullableSince(0)] = ()


DESCRIBE_CLIENT_QUOTAS_API = Api(48, "DescribeClientQuotas", 0, 1, 1, DescribeClientQuotasRequest, DescribeClientQuotasResponse)


class AlteredQuotaEntity(KafkaMessage, frozen=True, kw_only=True):
    entity_type: String = ""
    entity_name: Annotated[String | None, NullableSince(0)] = ""


class QuotaOperation(KafkaMessage, frozen=True, kw_only=True):
    key: String = ""
    value: Float64 = 0.0
    remove: Boolean = False


class QuotaAlteration(KafkaMessage, frozen=True, kw_only=True):
    entity: tuple[AlteredQuotaEntity, ...] = ()
    ops: tuple[QuotaOperation, ...] = ()


class AlterClientQuotasRequest(KafkaMessage, frozen=True, kw_only=True):
    entries: tuple[QuotaAlteration, ...] = ()
    validate_only: Boolean = False


class QuotaAlterationResult(KafkaMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    error_message: Annotated[String | None, NullableSince(0)] = ""
    entity: tuple[AlteredQuotaEntity, ...] = ()


class AlterClientQuotasResponse(KafkaMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    entries: tuple[QuotaAlterationResult, ...] = ()


ALTER_CLIENT_QUOTAS_API = Api(49, "AlterClientQuotas", 0, 1, 1, AlterClientQuotasRequest, AlterClientQuotasResponse)
